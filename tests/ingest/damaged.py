"""Bytes of files with damage that is chosen at random."""

import random


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return data that was truncated, or of which bits, bytes or whole ranges are other ones."""
    changed = bytearray(data)
    place, size = chance.randrange(len(data)), chance.randrange(1, 40)
    way = chance.randrange(6)
    if way == 0:
        return data[:place]
    if way == 1:
        changed[place : place + size] = chance.randbytes(chance.randrange(40))
    elif way == 2:
        # What readers take for lengths that go on, or for none.
        changed[place : place + size] = chance.choice([b"\xff", b"\x80", b"\x00"]) * size
    else:
        for _ in range(chance.choice([1, 1, 2, 8])):
            place = chance.randrange(len(data))
            changed[place] = chance.randrange(256) if way == 3 else changed[place] ^ 1 << chance.randrange(8)
    return bytes(changed)
