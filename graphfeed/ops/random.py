"""Counter-based keyed random numbers, which depend on what is sampled, never on the thread, process or time.

Every draw is `hash(seed, epoch, mini-batch, stage, hop, node, draw number)`. The first five are folded into a 64-bit
key (`ops/keys.py`), together with the seed's index if each seed has its own tree. A kernel folds the node into a state,
from which its draws are counted. The mixing function is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast
splittable pseudorandom number generators, OOPSLA 2014). It only uses integers, so all back ends are bit-identical.
"""

MASK = (1 << 64) - 1
LOW_HALF = (1 << 32) - 1
GOLDEN = 0x9E3779B97F4A7C15
"""Odd increment between the draws of one state: 2**64 over the golden ratio."""
NODE = 0xD1B54A32D192ED03
"""Odd multiplier that spreads node ids."""
EDGE_TYPE = 0x8CB92BA72F3D8DD7
"""Odd multiplier that separates the edge types of a node."""
TIME = 0xE7037ED1A0B428DB
"""Odd multiplier that separates the times of a node."""
SWITCH = 0xA0761D6478BD642F
"""Key of a node's switch point: the threshold from which it uses the second key instead of the first."""
UPPER = 0x9E3779B1
"""Odd multiplier that spreads the upper halves of node ids."""
LAST = 0xD35A2D97
"""Odd multiplier of the last step of `high_bits`, from Hash Prospector (Wellons, public domain)."""


def mix(value: int) -> int:
    # Each step is a bijection on 64 bits.
    value &= MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def fold(key: int, *values: int) -> int:
    """Fold integers into a key. Other values, or another order, yield an unrelated key."""
    for value in values:
        key = mix(key ^ mix(value + GOLDEN))
    return key


def draw(key: int, node: int, number: int, edge_type: int | None = None, time: int | None = None) -> int:
    """Return the 64 random bits that every kernel draws for a node."""
    # The key is that of a hop (see `Key.at`); the first draw of a node has number 0.
    state = mix(key ^ (node * NODE))
    if time is not None:
        state = mix(state ^ ((time * TIME) & MASK))
    # Only if there is a fan-out per edge type.
    if edge_type is not None:
        state = mix(state + (edge_type + 1) * EDGE_TYPE)
    return mix(state + ((number + 1) * GOLDEN & MASK))


def high_bits(key: int, node: int) -> int:
    """Return the upper 32 bits of a node's variate, from two 32-bit products; a bijection for ids below 2**32."""
    # The lower half of the key is added without carries and the upper half is a factor, so that the bits of two nodes
    # are nearly independent, even for adjacent ids. Keys must be mixed: similar keys yield similar bits.
    bits = ((node ^ key) & LOW_HALF) + (node >> 32) * UPPER & LOW_HALF
    bits = (bits ^ (bits >> 16)) * (key >> 32 | 1) & LOW_HALF
    bits = (bits ^ (bits >> 15)) * LAST & LOW_HALF
    return bits ^ (bits >> 15)


def variate(keys: tuple[int, int], switch_threshold: int, node: int) -> int:
    """Return the 64 random bits of a neighbour, which all columns share; its further draws are counted from there."""
    # The threshold is the share of nodes that use the second of two consecutive keys, in units of 2**-64, of which the
    # upper 32 bits are used. As it grows, each node switches once. So similar thresholds yield the same draws for most
    # nodes, while the bits of each node are uniform.
    key = keys[high_bits(SWITCH, node) < switch_threshold >> 32]
    # The lower half is the lower half of the node's state.
    return high_bits(mix(key), node) << 32 | mix(key ^ (node * NODE)) & LOW_HALF


def bounded(bits: int, bound: int) -> int:
    # The high half of the product (Lemire, 2019) is in `0 .. bound - 1`.
    return (bits * bound) >> 64
