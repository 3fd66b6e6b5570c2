from graphfeed.distributed import DistContext, DistRole


def test_a_context_has_the_fields_and_the_name_of_the_predecessor() -> None:
    context = DistContext(1, 2, 3, 4, "sage")
    fields = (context.rank, context.global_rank, context.world_size, context.global_world_size, context.role)
    assert fields == (1, 2, 3, 4, DistRole.WORKER)
    assert context.worker_name == "sage-1"
    assert context == DistContext(rank=1, global_rank=2, world_size=3, global_world_size=4, group_name="sage")
