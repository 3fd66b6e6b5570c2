"""The clock of another machine."""

DRIFT = 5e-5
"""By how many seconds two clocks may part in a second."""


class RemoteClock:
    """How far a server's clock is ahead of this machine's, by the answer that was on its way for the shortest time.

    A request and its answer may take unlike times on the way, so the difference is wrong by up to half of what both
    took together. As clocks drift, an old answer gives way to a newer one that was on its way for a bit longer.

    Args:
        process: The number that stands for the server where processes are numbered.
    """

    def __init__(self, process: int) -> None:
        self.process = process
        # How long the best answer was on its way, when it came, and the difference: replaced as one, since threads ask.
        self._best: tuple[int, int, int] | None = None

    def ahead(self, asked: int, received: int, sent: int, answered: int) -> int:
        """Return how many nanoseconds the server is ahead, after another answer.

        Args:
            asked: When the request left, by this machine's clock.
            received: When it came to the server, by the server's clock.
            sent: When the answer left, by the server's clock.
            answered: When it came here, by this machine's clock.
        """
        on_the_way = (answered - asked) - (sent - received)
        best = self._best
        if best is None or on_the_way <= best[0] + 2 * DRIFT * (answered - best[1]):
            best = self._best = on_the_way, answered, (received + sent - asked - answered) // 2
        return best[2]
