"""Pictures of the plans and kernels that run for a pipeline, drawn again for each build."""

import hashlib
from itertools import islice
from pathlib import Path

import torch

import graphfeed as gf
from docs.builder.drawing import Drawing, chain, grid
from graphfeed.datapipes.pipeline import describe_stage
from graphfeed.loader.explain import Location, list_stages
from graphfeed.ops.sampling.hops.hop_program import PROGRAMS

NODES = 5000
BATCHES = 4


def write_pictures(folder: Path) -> None:
    """Write the pictures that pages include."""
    folder.mkdir(parents=True)
    for drawing in (draw_program(), draw_written(), draw_bits(), draw_passes(), draw_plan(), draw_places()):
        (folder / f"{drawing.name}.svg").write_text(drawing.svg())


def make_pipe(*fanouts: int) -> gf.Datapipe:
    """Return a pipeline on a small graph: items, neighbours, features."""
    edges = torch.randint(NODES, (2, 20 * NODES), generator=torch.Generator().manual_seed(0))
    graph = gf.from_coo(edges, NODES)
    features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(torch.zeros(NODES, 16))})
    pipe = gf.ItemSampler(gf.ItemSet(NODES, names="seeds"), batch_size=256, shuffle=True)
    return pipe.sample_neighbor(graph, list(fanouts)).fetch_feature(features, ["feat"])


def stages(pipe: gf.Datapipe) -> list[tuple[gf.Datapipe, str]]:
    """Return the stages of a pipeline and where they run, the source first."""
    return [(stage, location.where) for stage, location, _ in list_stages(pipe, Location("main", ""), 0)][::-1]


def draw_program() -> Drawing:
    """Draw the plan of the program on the start page: one hop, and two workers."""
    with gf.DataLoader(make_pipe(10), num_workers=2, seed=0) as loader:
        running = [
            (place, type(stage).__name__, "", stage.traits.inserted) for stage, place in stages(loader.plan.running)
        ]
    text = "; ".join(f"{name} in {place}{', inserted' if inserted else ''}" for place, name, _, inserted in running)
    drawing = Drawing("program", "The pipeline, as two workers run it", f"{text}; your loop.")
    chain(drawing, [*running, ("main", "your loop", "", False)])
    return drawing


def draw_written() -> Drawing:
    """Draw the stages of a pipeline."""
    written = [(type(stage).__name__, short_fields(stage)) for stage, _ in stages(make_pipe(5, 10))]
    text = f"A chain of stages: {', then '.join(name for name, _ in written)}."
    drawing = Drawing("written", "A pipeline as it is written", text)
    chain(drawing, [("", name, fields, False) for name, fields in written])
    return drawing


def short_fields(stage: gf.Datapipe) -> str:
    """Return the fields of a stage that are numbers, flags, names, or lists of these."""
    kept = []
    for name, value in vars(stage).items():
        values = value if isinstance(value, list) else [value]
        if f"{name}=" in describe_stage(stage) and all(isinstance(one, int | str) for one in values):
            kept.append(f"{name}={value!r}")
    return ", ".join(kept)


def digest(minibatch: gf.MiniBatch) -> str:
    """Return some digits of a checksum of the seeds and the edges of a mini-batch."""
    tensors = [minibatch.seeds, *(hop.sampled_csc.indices for hop in minibatch.sampled_subgraphs)]
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()[:6]


def draw_bits() -> Drawing:
    """Run an epoch in several ways, and draw the checksums of its mini-batches."""
    pipe, rows = make_pipe(5, 10), []
    for name, num_workers, begin in (("inline", 0, 0), ("2 threads", 2, 0), ("resumed", 1, 2)):
        with gf.DataLoader(pipe, num_workers=num_workers, seed=0) as loader:
            if begin:
                with gf.DataLoader(pipe, num_workers=0, seed=0) as before:
                    list(islice(before, begin))
                    loader.load_state_dict(before.state_dict())
            made = [digest(minibatch) for minibatch in islice(loader, BATCHES - begin)]
        rows.append((name, [("", "")] * begin + [(words, "worker" if num_workers else "main") for words in made]))
    text = f"The same checksums in each column: {', '.join(words for words, _ in rows[0][1])}, inline, with two worker "
    text += "threads, and resumed by another loader after two mini-batches."
    drawing = Drawing("bits", "Checksums of the first mini-batches of an epoch", text)
    grid(drawing, [f"index {index}" for index in range(BATCHES)], rows)
    return drawing


def draw_passes() -> Drawing:
    """Sample one hop, and draw the passes of the program that the CPU ran for it."""
    with gf.DataLoader(make_pipe(10), num_workers=0, seed=0) as loader:
        next(iter(loader))
    program = next(reversed(PROGRAMS.idle.values()))[-1]
    names = [kernel.__name__ for kernel, _ in program.program.steps]
    text = f"NeighborSampler calls sample_hops. It runs a program of {len(names)} passes: {', '.join(names)}."
    drawing = Drawing("passes", "The kernels that the CPU runs for a mini-batch with one hop", text)
    above = [("", "NeighborSampler", "a stage", False), ("", "sample_hops", "an operation", False)]
    chain(drawing, [*above, *(("", name, "", True) for name in names)])
    return drawing


def draw_plan() -> Drawing:
    """Draw the plan that the loader makes for a GPU; stages that rules inserted are dashed."""
    with gf.DataLoader(make_pipe(5, 10).copy_to("cuda"), num_workers=2, seed=0) as loader:
        plan = loader.plan
    running = [(place, type(stage).__name__, "", stage.traits.inserted) for stage, place in stages(plan.running)]
    text = "; ".join(f"{name} in {place}{', inserted' if inserted else ''}" for place, name, _, inserted in running)
    drawing = Drawing("plan", "The same pipeline with a copy to a GPU, as two workers run it", f"{text}; your loop.")
    chain(drawing, [*running, ("main", "your loop", "", False)])
    rules = [rule.__name__ for rule in plan.applied]
    drawing.write(0, drawing.height + 14, "rules that changed something:", anchor="start", size=12)
    for rule in rules:
        drawing.height += 18
        drawing.write(12, drawing.height + 14, rule, anchor="start", size=12)
    drawing.height += 24
    return drawing


def draw_places() -> Drawing:
    """Draw where each stage of one pipeline runs under several executors."""
    pipe = make_pipe(5, 10).copy_to("cuda")
    executors = {"no workers": (0, "thread"), "threads": (2, "thread"), "processes": (2, "process")}
    columns = []
    for num_workers, worker in executors.values():
        with gf.DataLoader(pipe, num_workers=num_workers, worker=worker, seed=0) as loader:
            columns.append({type(stage).__name__: place for stage, place in stages(loader.plan.running)})
    names = [type(stage).__name__ for stage, _ in stages(pipe)]
    rows = [(name, [(places[name], places[name]) for places in columns]) for name in names]
    texts = [f"{name} in {', '.join(place for place, _ in cells)}" for name, cells in rows]
    text = f"With {', '.join(executors)}: {'; '.join(texts)}."
    drawing = Drawing("places", "Where each stage runs", text)
    grid(drawing, list(executors), rows)
    return drawing
