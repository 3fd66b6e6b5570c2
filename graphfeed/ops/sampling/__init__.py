"""Operations that draw: neighbours, all hops of a mini-batch, negatives, shuffled orders.

What they prepare once per graph, such as running sums of weights or the order of time, is here too. Relabelling what
was drawn is in `graphfeed.ops.structure`; stages that draw are in `graphfeed.datapipes`.
"""
