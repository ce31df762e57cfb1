#!/usr/bin/env python3
"""A model of the barriers of the backward's pairs of CTAs, as backward_protocol_model.py is of single ones.

    backward_pair_model.py [SCHEDULES]

Two CTAs with barriers of their own: each loads one half of every tile of Q and dO into both, the scheduler of CTA 0
fills the slots of both, and each sends the other one its dS for the half of dQ that is computed there. What goes to the
other CTA (arrivals, words, copies) gets there at any time after it was sent, and must not find the CTA gone. Every tile
has to be the same one in both CTAs. What is a role, what is not modelled and what is asked of wrong protocols: see
backward_protocol_model.py.
"""
import random
import sys

sys.dont_write_bytecode = True
from pair_machine import END_OWN, FEW_WORDS, LEAVES, ROW_STAGES, STALLS, WORD_SLOTS, WRONG, Cta  # noqa: E402
from protocol_machine import IN_FLIGHT, STAGES, check, outcome, run  # noqa: E402


class Pair:
    def __init__(self, seed, wrong=None, word_slots=WORD_SLOTS):
        self.random, self.wrong, self.flying = random.Random(seed), wrong, []
        sizes = [self.random.choice([1, 1, 2, 3, 4, 7]) for _ in range(self.random.randint(0, 7))]
        self.blocks = [range(sum(sizes[:n]), sum(sizes[:n + 1])) for n in range(len(sizes))]  # tiles of each
        self.tiles = sum(sizes)
        self.ctas = []
        self.ctas += [Cta(self, rank, ROW_STAGES + 1 if wrong == FEW_WORDS else word_slots) for rank in range(2)]
        self.undelivered, self.inside = {}, []

    def sweep(self, block, front):
        tiles = list(self.blocks[block])
        return tiles[front % len(tiles):] + tiles[:front % len(tiles)]

    def send(self, role, cta, effect):
        """Something that reaches `cta` at any time from now on."""

        def arrival():
            check(not cta.left, "something reaches a CTA that has left")
            self.undelivered[role] -= 1
            effect()

        self.undelivered[role] = self.undelivered.get(role, 0) + 1
        self.flying.append(arrival)

    def leave(self, role):
        """The cluster barrier at the end of kernel.cuh: releases what the thread has sent, waits for all others."""
        yield
        if self.wrong != LEAVES:
            waiting = object()
            while self.undelivered.get(role, 0) != 0:
                yield waiting
        self.inside.remove(role)
        if self.wrong != LEAVES:
            waiting = object()
            while self.inside:
                yield waiting
        else:
            self.ctas[role[0]].left = not any(rank == role[0] for rank, _ in self.inside)

    # scheduler.cuh, of CTA 0
    def scheduler(self):
        for drawn in range(len(self.blocks) + 1):
            slot = drawn % STAGES
            yield from self.ctas[0].wait_empty("work", slot, drawn // STAGES)
            work = (drawn, self.random.randrange(99)) if drawn < len(self.blocks) else None
            for cta in self.ctas[:1] if self.wrong == END_OWN and work is None else self.ctas:
                cta.work[slot] = IN_FLIGHT
                self.send((0, "scheduler"), cta, lambda cta=cta, slot=slot, work=work: cta.fill(slot, work))
                yield
        yield from self.leave((0, "scheduler"))

    def check_schedule(self):
        roles = {(0, "scheduler"): self.scheduler()}
        for cta in self.ctas:
            roles |= {(cta.rank, "loader"): cta.loader(), (cta.rank, "sender"): cta.sender(), (cta.rank, "dq"): cta.dq(),
                      (cta.rank, 0): cta.columns(0), (cta.rank, 1): cta.columns(1)}
        self.inside = list(roles)
        run(self.random, roles, self.flying)
        check(not self.flying, "something is under way after the end")
        for cta in self.ctas:
            check(len(cta.written) == len(set(cta.written)) == 2 * len(self.blocks), "a block is missing")
            check(sorted(cta.dq_sums) == list(range(self.tiles)), "dQ is the sum over", *cta.dq_sums)


def main(arguments):
    schedules = int(arguments[0]) if arguments else 60
    bad = False
    for slots in (WORD_SLOTS, ROW_STAGES + 2):  # as it is, and as few as shared_memory.hpp allows
        found = outcome(schedules, lambda seed: Pair(seed, word_slots=slots))
        bad |= found is not None
        print(f"pairs, {slots} word slots: {found or f'{schedules} schedules end well'}")
    for wrong in WRONG:
        found = outcome(schedules, lambda seed: Pair(seed, wrong))
        bad |= found is None or (wrong in STALLS and "stall" not in found)
        print(f"  {wrong}: {'found out, ' + found if found else 'NOT FOUND OUT'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
