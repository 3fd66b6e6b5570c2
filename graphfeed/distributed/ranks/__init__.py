"""Communication between the ranks of a distributed job.

Each rank has one `Peers` object, which answers requests of other ranks and sends this rank's requests to them. A job
has three phases::

    rank 0                                     rank 1
      |   1. meet: register in a store           |        a thread that polls the store,
      |<------- connect to each rank ----------->|        in the `Peers` thread
      |                                          |
      |   2. ask: request, response              |        the thread that needs the rows writes the request
      |-------- "graph 0", ids ----------------->|        and reads the response; an answering thread of the
      |<------- edges ---------------------------|        other rank computes it
      |<======= heartbeats =====================>|        the `Peers` thread
      |                                          |
      |   3. end: "I send no more requests"      |        the `Peers` thread answers with its heartbeats until
      |<======= last heartbeats ================>|        all ranks have ended, also after the end of `main`

1. **Meet.** Ranks register in the store of the process group, or in that of a `RendezvousAddress`, and connect to those
   that have registered. The constructor of `Peers` doesn't wait for this; the first request does.
2. **Ask.** Requests go to the owners of ids (`owners`), in messages of JSON and tensors. Before a part is used, all
   ranks compare their parts; before a run begins, they compare their pipelines and random seeds.
3. **End.** A rank ends when no other rank sends requests. If a rank is lost at any time, a heartbeat names it to the
   others, and each pending request raises a `RankLostError`.

`membership` has what concerns the life of ranks: rendezvous, heartbeats, comparison, and how the program ends.
`transport` has connections and messages. The contents of messages are defined by partitioned graphs and features, and
by `graphfeed.distributed.cooperative`.
"""
