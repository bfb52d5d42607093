"""Every key of the record: its name, its owner, its type, and how long it lives.

| key | type | written by | lives |
| --- | --- | --- | --- |
| `{prefix}:{NN}:run:<run>` | hash | every transition | until it ended + retention |
| `{prefix}:{NN}:log:<run>` | list | transitions that append | as the run |
| `{prefix}:{NN}:ledger:<run>` | list | transitions that account | as the run |
| `{prefix}:{NN}:seen:<run>` | set | open_calls | as the run |
| `{prefix}:{NN}:calls:<run>` | hash | open_calls, begin_call and those that follow it; gone after join | as the run |
| `{prefix}:{NN}:results:<run>` | hash | finish_call, resolve; gone after join | as the run |
| `{prefix}:{NN}:whole:<run>` | hash | finish_call, join, resolve; texts that the model was shown cut | as the run |
| `{prefix}:{NN}:due` | sorted set | every transition; a run leaves it when it ends | while a run of the shard lives |
| `{prefix}:{NN}:dead` | sorted set | finish, redrive | the shard's last failure + retention |
| `{prefix}:{NN}:counts:<tag>` | hash | every transition | while a run of it is not over there; then as the batch |
| `{prefix}:{NN}:metrics` | hash | whatever is counted | the last submission, ending or `keep` + retention |
| `{prefix}:{NN}:mark` | string | confirmations, so that there is a write to wait for | last confirmation + retention |
| `{prefix}:batch:{<tag>}` | hash | open_batch | while a run of it is not over; the last use + retention |
| `{prefix}:budget:{<tag>}` | hash | set_budget, reserve, release | as the batch |
| `{prefix}:rows:{<tag>}` | sorted set | submit | as the batch |
| `{prefix}:batches` | sorted set | open_batch, which takes off what is forgotten | as the batches |
| `{prefix}:agents` | hash | open_batch: the agents that are counted by name | as the batches |
| `{prefix}:agent:<digest>` | string | put_agent | as the batches of it |
| `{prefix}:worker:<incarnation>` | string | beat | `alive_seconds` |
| `{prefix}:workers` | sorted set | beat, retire | the last beat + retention |
| `{prefix}:hold:<model>` | string | hold_model | as long as the hold |
| `{prefix}:sweep` | string | may_sweep | less than the pause between two sweeps |

NN is the run's shard. All keys of a run, its shard's `due` and `metrics` and its batch's `counts` there share the hash
tag `{NN}`, so each transition is one script on Redis Cluster too. Nothing else is touched in the same script.

A batch (its rows, its totals) and an agent are used by submissions, endings, cancels and redrives, and by `keep`, which
the sweeper asks for whenever it looks at runs that are not over: so they live as long as a run of them does.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.ids import SHARDS, AgentDigest, BatchTag, Incarnation, RunId, shard_of, tag_of


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of the record's keys under one prefix."""

    prefix: str

    def of_run(self, run: RunId) -> list[str]:
        """The keys of a run in the order in which every script takes them: `lua/lib.lua` names them."""
        shard = f"{self.prefix}:{{{shard_of(run):02d}}}"
        return [
            f"{shard}:run:{run}",
            f"{shard}:due",
            f"{shard}:counts:{tag_of(run)}",
            f"{shard}:log:{run}",
            f"{shard}:ledger:{run}",
            f"{shard}:seen:{run}",
            f"{shard}:calls:{run}",
            f"{shard}:results:{run}",
            f"{shard}:whole:{run}",
            f"{shard}:dead",
            f"{shard}:metrics",
        ]

    def run(self, run: RunId) -> str:
        return self.of_run(run)[0]

    def log(self, run: RunId) -> str:
        return self.of_run(run)[3]

    def ledger(self, run: RunId) -> str:
        return self.of_run(run)[4]

    def calls(self, run: RunId) -> str:
        return self.of_run(run)[6]

    def whole(self, run: RunId) -> str:
        return self.of_run(run)[8]

    def due(self) -> list[str]:
        """The index of runs by the moment to look at them, one for each shard."""
        return [f"{self.prefix}:{{{shard:02d}}}:due" for shard in range(SHARDS)]

    def due_of(self, run: RunId) -> str:
        """The index that this run is in."""
        return f"{self.prefix}:{{{shard_of(run):02d}}}:due"

    def dead(self) -> list[str]:
        """The index of runs that failed by when they did, one for each shard."""
        return [f"{self.prefix}:{{{shard:02d}}}:dead" for shard in range(SHARDS)]

    def metrics(self) -> list[str]:
        """What was counted, one for each shard; `core/metrics.py` names the fields."""
        return [f"{self.prefix}:{{{shard:02d}}}:metrics" for shard in range(SHARDS)]

    def counts(self, tag: BatchTag) -> list[str]:
        """A batch's totals, one for each shard."""
        return [f"{self.prefix}:{{{shard:02d}}}:counts:{tag}" for shard in range(SHARDS)]

    def mark(self, beside: str) -> str:
        """A key of no meaning in the slot of this one, which has a shard's hash tag."""
        return f"{beside.partition('}')[0]}}}:mark"

    def of_batch(self, tag: BatchTag) -> list[str]:
        """All there is of a batch beside its runs."""
        return [self.batch(tag), self.rows(tag), self.budget(tag), *self.counts(tag)]

    def batch(self, tag: BatchTag) -> str:
        return f"{self.prefix}:batch:{{{tag}}}"

    def budget(self, tag: BatchTag) -> str:
        """What a batch may cost, and what each of its runs holds of that."""
        return f"{self.prefix}:budget:{{{tag}}}"

    def rows(self, tag: BatchTag) -> str:
        return f"{self.prefix}:rows:{{{tag}}}"

    def batches(self) -> str:
        return f"{self.prefix}:batches"

    def agents(self) -> str:
        return f"{self.prefix}:agents"

    def agent(self, digest: AgentDigest) -> str:
        return f"{self.prefix}:agent:{digest}"

    def worker(self, incarnation: Incarnation) -> str:
        return f"{self.prefix}:worker:{incarnation}"

    def workers(self) -> str:
        return f"{self.prefix}:workers"

    def model_hold(self, model: str) -> str:
        return f"{self.prefix}:hold:{model}"

    def sweep(self) -> str:
        return f"{self.prefix}:sweep"
