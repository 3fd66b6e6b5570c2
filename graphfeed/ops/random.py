"""Counter-based keyed random numbers: what is drawn depends on what is sampled, never on who samples it or when.

Every draw is `hash(seed, epoch, mini-batch, stage, hop, node, draw number)`. The first five are folded into one 64-bit
key (`ops/keys.py`), and so is the number of the seed where each seed has a tree of its own. A kernel folds the node
into a state and counts its draws from there. The mixing function is the finaliser of SplitMix64 (Steele, Lea, Flood:
Fast splittable pseudorandom number generators, OOPSLA 2014), of integers alone, so that every back end computes the
same bits.
"""

MASK = (1 << 64) - 1
SHORT = (1 << 32) - 1
GOLDEN = 0x9E3779B97F4A7C15
"""Odd increment between the draws of one state: 2**64 over the golden ratio."""
NODE = 0xD1B54A32D192ED03
"""Odd multiplier that spreads node ids."""
EDGE_TYPE = 0x8CB92BA72F3D8DD7
"""Odd multiplier that sets the edge types of one node apart."""
TIME = 0xE7037ED1A0B428DB
"""Odd multiplier that sets the times of one node apart."""
SWITCH = 0xA0761D6478BD642F
"""The key of a node's switch point: where, as the threshold grows, it goes over from one key to the next."""
UPPER = 0x9E3779B1
"""Odd multiplier that spreads the upper halves of node ids."""
LAST = 0xD35A2D97
"""Odd multiplier at the end of high bits, from Hash Prospector (Wellons, public domain)."""


def mix(value: int) -> int:
    # Each step is one to one on 64 bits.
    value &= MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def fold(key: int, *values: int) -> int:
    """Fold integers into a key; other values or another order give an unrelated key."""
    for value in values:
        key = mix(key ^ mix(value + GOLDEN))
    return key


def draw(key: int, node: int, number: int, edge_type: int | None = None, time: int | None = None) -> int:
    """Return the 64 random bits that every kernel draws for a node."""
    # The key is that of one hop, as `Key.at` gives it; the first draw of a node has number 0.
    state = mix(key ^ (node * NODE))
    if time is not None:
        state = mix(state ^ ((time * TIME) & MASK))
    # Only where each edge type has a fan-out of its own.
    if edge_type is not None:
        state = mix(state + (edge_type + 1) * EDGE_TYPE)
    return mix(state + (number + 1) * GOLDEN)


def high_bits(key: int, node: int) -> int:
    """Return the upper 32 bits of a node's variate, from two products of 32 bits; one to one for ids below 2**32."""
    # The lower half of the key is added without carries and the upper half is a factor, so that the bits of two nodes
    # are as good as independent, however near their ids are. Keys must be mixed: similar keys give similar bits.
    bits = ((node ^ key) & SHORT) + (node >> 32) * UPPER & SHORT
    bits = (bits ^ (bits >> 16)) * (key >> 32 | 1) & SHORT
    bits = (bits ^ (bits >> 15)) * LAST & SHORT
    return bits ^ (bits >> 15)


def variate(keys: tuple[int, int], switch_threshold: int, node: int) -> int:
    """Return the 64 random bits of a neighbour that all columns share; its further draws count from there."""
    # Of this key and the one that comes after it, the threshold says which part of the nodes draws by the second, in
    # units of 2**-64; its upper 32 bits count. As it grows, each node goes over once. So two near thresholds leave the
    # bits of most nodes alone, while those of each node are uniform.
    key = keys[high_bits(SWITCH, node) < switch_threshold >> 32]
    # The lower half is that of the bits of the node's state.
    return high_bits(mix(key), node) << 32 | mix(key ^ (node * NODE)) & SHORT


def bounded(bits: int, bound: int) -> int:
    # The high half of the product (Lemire, 2019) lies in `0 .. bound - 1`.
    return (bits * bound) >> 64
