# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Temporal graphs
#
# In this tutorial, you train a model to predict, an hour before departure, whether a flight will leave late. It uses
# what happened at the airport, to the airline and to the plane before that hour, and nothing after it. You also see
# what happens when a clock is wrong by four hours.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf

torch.set_num_threads(1)  # leave the other cores to the loader

# %% [markdown]
# ## Flights
#
# The table contains all flights that left New York in July 2013, sorted by scheduled departure. We remove cancelled
# flights. Times are in minutes since the beginning of the month.

# %%
table = pq.read_table("data/flights/flights.parquet")
table = table.filter(table["delay"].is_valid())
scheduled = torch.from_numpy((table["scheduled"].to_numpy() - np.datetime64("2013-07-01")) // np.timedelta64(1, "m"))
delay = torch.from_numpy(table["delay"].to_numpy().astype(np.int64))
late = delay > 15
num_flights = len(delay)
print(f"{num_flights} flights; {late.float().mean():.0%} of them left more than 15 minutes late")

# %% [markdown]
# ## A graph with timestamps
#
# Each flight is connected to its airport, airline and plane, in both directions. All nodes are numbered from 0.

# %%
columns = {"airport": "origin", "airline": "carrier", "plane": "tailnum"}
ends = {node_type: np.unique(table[column], return_inverse=True) for node_type, column in columns.items()}
num_nodes = {"flight": num_flights} | {node_type: len(names) for node_type, (names, _) in ends.items()}
flights = torch.arange(num_flights)
edges = {}
for node_type, (_, numbers) in ends.items():
    edges[f"flight:of:{node_type}"] = (flights, torch.from_numpy(numbers))
    edges[f"{node_type}:has:flight"] = (torch.from_numpy(numbers), flights)

# %% [markdown]
# The timestamp of an edge is the earliest time at which it is known. A flight and its delay become known to the airport
# when the flight has left. The airport of a flight is known long before, since timetables are published early.

# %%
left_at = scheduled + delay
early = torch.full((num_flights,), -1)
known = {edge_type: left_at if edge_type.startswith("flight:") else early for edge_type in edges}
graph = gf.from_coo(edges, num_nodes, edge_attributes={"known": known})
graph

# %% [markdown]
# The delay is a feature of edges, not of flights. A flight therefore can't see its own delay, which belongs to edges
# that are later than the time of its question.

# %%
outcome = torch.stack([delay.clamp(-20, 120) / 60, late.float()], dim=1)
features = gf.BasicFeatureStore(
    {("edge", f"flight:of:{node_type}", "outcome"): gf.TorchBasedFeature(outcome) for node_type in columns}
)

# %% [markdown]
# ## Questions with timestamps
#
# A question is a flight and the time at which we ask for a prediction: an hour before its scheduled departure. The
# flight's entry in the timetable is known at any time.
#
# We train on the first three weeks and test on the rest. A random split would put flights of the same stormy evening
# into both sets.

# %%
hour = scheduled % 1440 / 1440 * 2 * torch.pi
weekday = functional.one_hot(scheduled // 1440 % 7, 7).float()
timetable = torch.cat([hour.sin()[:, None], hour.cos()[:, None], (2 * hour).sin()[:, None], weekday], dim=1)


def questions(chosen: torch.Tensor, ask_at: torch.Tensor) -> gf.HeteroItemSet:
    """Return the chosen flights, the time at which we ask about each, and the answers."""
    tensors = (flights[chosen], ask_at[chosen], late[chosen].float())
    return gf.HeteroItemSet({"flight": gf.ItemSet(tensors, names=("seeds", "timestamp", "labels"))})


is_training = scheduled < 21 * 1440
hour_before = scheduled - 60

# %% [markdown]
# ## Temporal sampling
#
# `temporal_sample_neighbor` only samples edges that are earlier than the timestamp of the seed. The first hop finds the
# flight's airport, airline and plane. The second finds the latest flights of each, due to `strategy="latest"`.
#
# Fan-outs are given per edge type, outermost hop first.

# %%
wanted = {"flight:of:airport": 20, "flight:of:airline": 20, "flight:of:plane": 3}
outer = torch.tensor([wanted.get(edge_type, 0) for edge_type in graph.edge_types])
inner = torch.tensor([0 if edge_type in wanted else 1 for edge_type in graph.edge_types])


def make_pipe(items: gf.HeteroItemSet, shuffle: bool = False) -> gf.Datapipe:
    """Return a pipeline of flights and the outcomes that are known when we ask."""
    pipe = gf.ItemSampler(items, batch_size=512, shuffle=shuffle)
    pipe = pipe.temporal_sample_neighbor(graph, [outer, inner], edge_timestamp_attr_name="known", strategy="latest")
    return pipe.fetch_feature(features, edge_feature_keys={key: ["outcome"] for key in wanted})


# %% [markdown]
# ## What a flight may see
#
# The plot shows a single flight on a bad evening. Each dot is a flight of the same airport, airline or plane, and the
# sampled ones are coloured. Nothing to the right of the line was sampled, as it had not happened yet.

# %%
flight = int(((scheduled == 22 * 1440 + 18 * 60) & late).nonzero()[0])
minibatch = next(iter(make_pipe(questions(flights == flight, hour_before))))

figure, axes = plt.subplots(figsize=(8, 3.4))
for row, edge_type in enumerate(wanted):
    node_type = edge_type.removeprefix("flight:of:")
    node = ends[node_type][1][flight]
    others = np.flatnonzero(ends[node_type][1] == node)
    sampled = minibatch.sampled_subgraphs[0].original_edge_ids[edge_type]
    jitter = np.random.default_rng(0).uniform(-0.3, 0.3, num_flights)
    label = "not sampled" if row == 0 else None
    axes.scatter((left_at[others] - scheduled[flight]) / 60, row + jitter[others], s=6, color="#bdbdbd", label=label)
    hours = (left_at[sampled] - scheduled[flight]) / 60
    for is_late, colour in ((False, "#6baed6"), (True, "#d94801")):
        shown = late[sampled] == is_late
        label = None if row else "sampled, late" if is_late else "sampled, in time"
        axes.scatter(hours[shown], row + jitter[sampled[shown]], s=24, color=colour, label=label)
axes.axvline(-1, color="#636363")
axes.text(-1.05, 2.45, "we ask", ha="right")
axes.set(yticks=range(3), yticklabels=[f"same {name}" for name in columns], xlim=(-11, 6), ylim=(-0.5, 2.7))
axes.set(xlabel="hours from the planned departure", title="What is sampled for one flight")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()


# %% [markdown]
# ## A model
#
# Airport, airline and plane each get a vector from the mean outcome of their latest flights. The flight adds these to a
# vector of its timetable entry. A row of the outer hop is one node at one time, so no vector mixes two questions.


# %%
def mean_by_column(csc: gf.CSCFormatBase, rows: torch.Tensor) -> torch.Tensor:
    """Return the mean over the edges of each column; `rows` has one row per edge."""
    degrees = csc.indptr.diff()
    sums = torch.zeros(len(degrees), rows.shape[1]).index_add(0, torch.repeat_interleave(degrees), rows)
    return sums / degrees.clamp(min=1)[:, None]


class Net(nn.Module):
    """Two hops: from outcomes to airports, airlines and planes, and from these to flights."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes = nn.ModuleDict({node_type: nn.Linear(2, 32) for node_type in columns})
        self.timetable = nn.Linear(timetable.shape[1], 32)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, minibatch: gf.MiniBatch) -> torch.Tensor:
        """Return a score for each flight; a higher one means that it is more likely to be late."""
        far, near = minibatch.sampled_subgraphs
        h = self.timetable(timetable[minibatch.seeds["flight"]])
        for node_type, linear in self.outcomes.items():
            edge_type = f"flight:of:{node_type}"
            means = mean_by_column(far.sampled_csc[edge_type], minibatch.edge_features[0][edge_type, "outcome"])
            first = near.sampled_csc[f"{node_type}:has:flight"]
            h = h + mean_by_column(first, linear(means)[first.indices])
        scores: torch.Tensor = self.head(h)[:, 0]
        return scores


# %% [markdown]
# ## Train, and test on later days
#
# The metric is the area under the ROC curve: the probability that a late flight gets a higher score than a punctual
# one. Random scores would reach 0.5.


# %%
def area_under_curve(scores: torch.Tensor, is_late: torch.Tensor) -> float:
    """Return the share of pairs in which the late flight has a higher score than the punctual one."""
    ranks = torch.empty(len(scores)).scatter_(0, scores.argsort(), torch.arange(1.0, len(scores) + 1))
    count = is_late.sum()
    wins = ranks[is_late].double().sum() - count * (count + 1) / 2
    return float(wins / (count * (len(scores) - count)))


def train_and_test(ask_at: torch.Tensor, epochs: int = 3) -> float:
    """Train on the first three weeks, and return the area under the curve for the later days."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
    train_pipe = make_pipe(questions(is_training, ask_at), shuffle=True)
    test_pipe = make_pipe(questions(~is_training, ask_at))
    with gf.DataLoader(train_pipe, num_workers=1, seed=0) as loader:
        for _ in range(epochs):
            for minibatch in loader:
                loss = functional.binary_cross_entropy_with_logits(net(minibatch), minibatch.labels["flight"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    with torch.no_grad(), gf.DataLoader(test_pipe, num_workers=1, seed=0) as loader:
        scores = torch.cat([net(minibatch) for minibatch in loader])
    return area_under_curve(scores, late[~is_training])


# %% [markdown]
# First, we train without any past: if we ask before the month begins, no flight has left yet, and only the timetable is
# known. Then, we ask an hour before departure.

# %%
areas = {"timetable only": train_and_test(torch.zeros_like(scheduled)), "an hour before": train_and_test(hour_before)}
for name, area in areas.items():
    print(f"{name}: {area:.2f}")

# %% tags=["remove-cell"]
assert areas["timetable only"] + 0.03 < areas["an hour before"] < 0.85

# %% [markdown]
# ## A wrong clock
#
# Suppose that one table is in local time and another one in UTC. In summer, New York is four hours behind UTC, so we
# would ask three hours after the departure. The sampler trusts these timestamps, and finds the answers.

# %%
areas["clock wrong by 4 hours"] = train_and_test(hour_before + 4 * 60)

# %% tags=["remove-cell"]
assert areas["clock wrong by 4 hours"] > areas["an hour before"] + 0.1

# %%
figure, axes = plt.subplots(figsize=(6.5, 2.2))
bars = axes.barh(list(areas), list(areas.values()), color=["#bdbdbd", "#08519c", "#d94801"], height=0.6)
axes.bar_label(bars, fmt=" %.2f")
axes.set(xlim=(0.5, 1.05), xlabel="area under the curve, on days after the training")
axes.set_title("How well late flights are predicted")
axes.invert_yaxis()
plt.show()

# %% [markdown]
# The last bar is not a better model. It is a leak, which looks like success. When a result seems too good, plot what a
# seed may see, as above.
#
# ## Further reading
#
# - [docs/glossary.md](../docs/glossary.md) defines the terms.
# - [Link prediction](04_link_prediction.ipynb) shows the other common leak: edges that give themselves away.
# - [A stream of events](18_temporal_events.ipynb) predicts the next event of a stream, and tests as TGB does.
# - [data/README.md](data/README.md) describes the data.
