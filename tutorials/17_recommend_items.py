# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Recommend items to items
#
# In this tutorial, you find similar items in three ways: by random walks as in PinSAGE, by personalized PageRank, and
# by vectors that are trained on pairs of items from walks. Then you compare the lists.
#
# "Who bought this also bought" needs no features and no labels, only a graph of customers and items. Walks go from an
# item to a customer who bought it, and on to another item of that customer.

# %% tags=["remove-cell"]
import importlib.util

if importlib.util.find_spec("graphfeed") is None:
    # %pip install -q ..
    importlib.invalidate_caches()

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional

import graphfeed as gf
from graphfeed.storage.graph import to_coo

torch.set_num_threads(1)  # the model is small; leave the other cores to the loader
torch.manual_seed(0)

# %% [markdown]
# ## Customers and items
#
# WordNet stands for a shop here: its 117,659 meanings are the items, and its words are the customers. A word "bought"
# the meanings that it has. Meanings are also connected with each other, as the items of a shop are by brand or kind.
# Each meaning belongs to a field, such as animals or food, which we use only to judge the result.

# %% tags=["exact"]
wordnet = gf.datasets.wordnet()
graph = wordnet.graph
field = torch.empty(117_659, dtype=torch.int64)
for items in (wordnet.train_set, wordnet.validation_set, wordnet.test_set):
    ids, labels = items[:]["synset"]
    field[ids] = labels
asked = wordnet.test_set[:]["synset"][0][:5000]
print(len(field), "items in", len(field.unique()), "fields; we look for items similar to", len(asked), "of them")

# %% [markdown]
# ## By visits
#
# `sample_by_visits` starts 100 walks at each item. A traversal of the metapath `etypes` leads to a word and back to a
# meaning: steps go against the edges, from the destination of an edge type to its source. Each walk makes up to three
# traversals, and ends before the second and the third with the chance `stop`. The result has an edge to each item
# from the ten items that its walks visited most. We ask for eleven, because the item itself is usually among them.


# %%
items = gf.HeteroItemSet({"synset": gf.ItemSet(asked, names="seeds")})
there_and_back = ["word:names:synset", "synset:rev_names:word"]
pipe = gf.ItemSampler(items, batch_size=1000)
visits = pipe.sample_by_visits(graph, [11], walks=100, length=3, stop=0.3, etypes=there_and_back)
minibatch = next(iter(visits))
hop = minibatch.sampled_subgraphs[0]
print(hop)

# %% [markdown]
# `edge_weights` has the numbers of visits. In a model, they would weight the messages of the items, as in PinSAGE.
#
# We compute two numbers for a list: how many items have any recommendation, and how many recommendations are of the
# same field as the item.


# %%
def judge(column: torch.Tensor, row: torch.Tensor) -> tuple[float, float]:
    """Return the share of items with a recommendation, and the share of recommendations of the same field."""
    other = column != row
    column, row = column[other], row[other]
    return len(column.unique()) / len(asked), (field[column] == field[row]).float().mean().item()


def recommend(pipe: gf.Datapipe, edge_type: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the pairs of an item and a recommendation from the mini-batches of a pipeline."""
    columns, rows = [], []
    with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
        for minibatch in loader:
            csc = minibatch.sampled_subgraphs[0].sampled_csc[edge_type]
            columns.append(minibatch.seeds["synset"].repeat_interleave(csc.indptr.diff()))
            rows.append(minibatch.input_nodes["synset"][csc.indices])
    return torch.cat(columns), torch.cat(rows)


found = {"visits": judge(*recommend(visits, "synset:visited:synset"))}
print("visits: {:.0%} of the items have recommendations, and {:.0%} of these fit".format(*found["visits"]))

# %% [markdown]
# The mini-batches are the same for any number of workers: a walk depends only on the random seed, the item where it
# starts, and its number.
#
# ## By personalized PageRank
#
# Many meanings share no word with others, so that no walk leaves them. `sample_by_ppr` goes along the edges of all
# types, and so reaches items by way of broader meanings, parts and so on. Nothing is drawn: a share `alpha` of an
# item's mass stays at each node, and the rest moves to its neighbours. With `per_type=True`, `top` is the number of
# nodes of each type, of which we use the items.

# %%
ranks = pipe.sample_by_ppr(graph, top=11, alpha=0.3, bound=1e-4, per_type=True)
found["PageRank"] = judge(*recommend(ranks, "synset:ppr:synset"))
print("PageRank: {:.0%} of the items have recommendations, and {:.0%} of these fit".format(*found["PageRank"]))

# %% [markdown]
# ## By vectors
#
# A vector for each item finds items that no path of a few steps leads to. We train it as node2vec and DeepWalk do:
# items that are near each other on a walk get similar vectors, and random items get other ones. `sample_walks` makes
# the walks on the graph of items alone, with all relations in both directions; `skip_gram` turns them into pairs of
# items at most two steps apart, and `sample_uniform_negative` adds a random item for each pair.

# %%
between = {name: ends for name, ends in to_coo(graph).items() if "word" not in str(name)}
ends = [torch.cat([getattr(own, side) for own in between.values()]) for side in ("sources", "destinations")]
plain = gf.from_coo((ends[0], ends[1]), num_nodes=len(field))

train = gf.ItemSampler(gf.ItemSet(len(field), names="seeds"), batch_size=1024, shuffle=True)
train = train.sample_walks(plain, length=6).skip_gram(window=2).sample_uniform_negative(plain, 1)
vectors = nn.Embedding(len(field), 32, sparse=True)
nn.init.normal_(vectors.weight, std=0.1)
optimizer = torch.optim.SparseAdam(vectors.parameters(), lr=0.02)
with gf.DataLoader(train, num_workers=2, seed=0) as loader:
    for _ in range(2):
        for minibatch in loader:
            one, other = vectors(minibatch.seeds).unbind(1)
            loss = functional.binary_cross_entropy_with_logits((one * other).sum(1), minibatch.labels.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

# %% [markdown]
# The ten items with the most similar vectors are the recommendations.

# %%
with torch.no_grad():
    unit = functional.normalize(vectors.weight, dim=1)
    near = torch.cat([(unit[some] @ unit.T).topk(11).indices for some in asked.split(250)])
found["vectors"] = judge(asked.repeat_interleave(11), near.flatten())
print("vectors: {:.0%} of the items have recommendations, and {:.0%} of these fit".format(*found["vectors"]))

# %% [markdown]
# ## Compare
#
# For comparison, ten random items are recommended to each item.

# %%
chance = torch.randint(len(field), (len(asked) * 10,), generator=torch.Generator().manual_seed(0))
found["chance"] = judge(asked.repeat_interleave(10), chance)
figure, axes = plt.subplots(figsize=(7, 3.5))
places = torch.arange(len(found)).numpy()
for number, label in enumerate(("items with recommendations", "recommendations of the same field")):
    axes.bar(places + 0.38 * number, [pair[number] for pair in found.values()], width=0.38, label=label)
axes.set(xticks=places + 0.19, xticklabels=list(found), ylim=(0, 1.3), title="Items recommended to items")
axes.legend(ncols=2, loc="upper center")
plt.show()

# %% tags=["remove-cell"]
assert found["PageRank"][0] > found["visits"][0]
assert min(found[name][1] for name in ("visits", "PageRank", "vectors")) > 2 * found["chance"][1]

# %% [markdown]
# ## What next
#
# - [Walk at random](../docs/how-to/walks.md) shows all parameters of walks: weights, node2vec's `p` and `q`,
#   metapaths.
# - The mini-batches of `sample_by_visits` and `sample_by_ppr` go to a model like those of any sampler: add
#   `fetch_feature`. [Link prediction](04_link_prediction.ipynb) shows a model that learns from pairs.
