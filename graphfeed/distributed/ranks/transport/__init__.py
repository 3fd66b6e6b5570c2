"""Messages between ranks: connections to others, a listener for theirs, and the format of messages."""
