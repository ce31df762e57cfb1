#!/usr/bin/env python3
"""A model of the barriers of the Hopper backward kernel (src/sm90/backward/shared_memory.hpp and the four roles).

    backward_protocol_model.py [SCHEDULES]

The roles are written down once more as generators that yield wherever another role may get ahead; copies land at any time
after they were issued. SCHEDULES random interleavings of random work run, and each must end, with every read finding the
tile or block it wants from its beginning to its end. Then each known wrong protocol runs, and at least one schedule must
find it out. It stands for the protocol only: that the kernel follows it is
for the reader to see, line by line.
"""
import random
import sys

WRONG = ["K released after the first tile", "work slot released with the first tile", "no wait for a free dS buffer",
         "V released before dP was read"]
STAGES, ROW_STAGES, WORD_SLOTS = 2, 3, 8
IN_FLIGHT = "in flight"


class Failure(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Failure(what)


class Barrier:
    def __init__(self, count):
        self.count, self.pending, self.copies, self.phase = count, count, 0, 0

    def arrive(self, count=1, copies=0):
        self.copies += copies
        check(self.pending >= count, "more arrivals than a phase has")
        self.pending -= count
        self.complete()

    def land(self):
        self.copies -= 1
        self.complete()

    def complete(self):
        if self.pending == 0 and self.copies == 0:
            self.phase, self.pending = self.phase + 1, self.count


class Model:
    def __init__(self, seed, wrong):
        self.random, self.wrong = random.Random(seed), wrong
        self.blocks = [self.random.choice([1, 1, 2, 3, 4, 7]) for _ in range(self.random.randint(0, 7))]  # tiles of each
        ring = lambda count, size=STAGES: [Barrier(count) for _ in range(size)]
        rows = ROW_STAGES
        self.full = {"work": ring(1), "k": ring(1), "v": ring(1, 1), "q": ring(1, rows), "o": ring(1, rows), "ds": ring(8)}
        self.empty = {"work": ring(8), "k": ring(4), "v": ring(8, 1), "q": ring(8, rows), "o": ring(8, rows), "ds": ring(4)}
        self.data = {"k": [None] * STAGES, "v": [None], "q": [None] * rows, "o": [None] * rows}
        self.ds = [[None, None] for _ in range(STAGES)]
        self.words, self.work = [None] * WORD_SLOTS, [None] * STAGES
        self.readers, self.flying, self.written = [], [], []

    # Steps. A wait yields True until its phase has completed; anything else yields None.
    def wait(self, barrier, parity):
        while barrier.phase % 2 == parity:
            yield True

    def copy(self, name, index, what):
        check((name, index) not in self.readers, name, "overwritten while it is read")
        self.full[name][index].arrive(copies=1)
        self.data[name][index] = IN_FLIGHT
        self.flying.append((name, index, what))
        yield

    def begin_read(self, *reads):
        for name, index, what in reads:
            check(self.data[name][index] == what, name, "holds", self.data[name][index], "instead of", what)
            self.readers.append((name, index))

    def end_read(self, *reads):
        for name, index, what in reads:
            check(self.data[name][index] == what, name, "became", self.data[name][index], "instead of", what)
            self.readers.remove((name, index))

    # Roles, as in scheduler.cuh, loader.cuh, columns.cuh and dq.cuh.
    def scheduler(self):
        for drawn in range(len(self.blocks) + 1):
            slot = drawn % STAGES
            yield from self.wait(self.empty["work"][slot], drawn // STAGES % 2 ^ 1)
            self.work[slot] = drawn if drawn < len(self.blocks) else None
            self.full["work"][slot].arrive()
            yield

    def loader(self):
        tile = 0
        for block, tiles in enumerate(self.blocks + [0]):
            yield from self.wait(self.full["work"][block % STAGES], block // STAGES % 2)
            check(self.work[block % STAGES] == (block if tiles else None), "the slot has another block")
            for i in range(tiles):
                yield from self.load_tile(tile, block, i == 0, i == tiles - 1)
                tile += 1
        yield from self.wait(self.empty["q"][tile % ROW_STAGES], tile // ROW_STAGES % 2 ^ 1)
        self.words[tile % WORD_SLOTS] = {"tile": None, "block": 0, "first": False, "last": False}
        self.full["q"][tile % ROW_STAGES].arrive()

    def load_tile(self, tile, block, first, last):
        stage, parity = tile % ROW_STAGES, tile // ROW_STAGES % 2 ^ 1
        yield from self.wait(self.empty["q"][stage], parity)
        self.words[tile % WORD_SLOTS] = {"tile": tile, "block": block, "first": first, "last": last}
        if first:
            yield from self.wait(self.empty["k"][block % STAGES], block // STAGES % 2 ^ 1)
            yield from self.copy("k", block % STAGES, block)
        yield from self.copy("q", stage, tile)
        yield from self.wait(self.empty["o"][stage], parity)
        yield from self.copy("o", stage, tile)
        if first:
            yield from self.wait(self.empty["v"][0], block % 2 ^ 1)
            yield from self.copy("v", 0, block)

    def columns(self, group):
        yield from self.wait(self.full["q"][0], 0)
        word, tile = self.words[0], 0
        if word["tile"] is not None:
            yield from self.first_scores(word)
        while word["tile"] is not None:
            check(word["tile"] == tile, "the word is of another tile")
            yield
            word = yield from self.step(group, word)
            tile += 1
        yield from self.wait(self.empty["ds"][tile % STAGES], tile // STAGES % 2 ^ 1)
        self.full["ds"][tile % STAGES].arrive(4)

    def first_scores(self, word):
        key = word["block"] % STAGES
        yield from self.wait(self.full["k"][key], word["block"] // STAGES % 2)
        reads = ("k", key, word["block"]), ("q", word["tile"] % ROW_STAGES, word["tile"])
        self.begin_read(*reads)
        yield
        self.end_read(*reads)

    def step(self, group, word):
        tile, block = word["tile"], word["block"]
        stage, ds_stage, value_reads = tile % ROW_STAGES, tile % STAGES, ("v", 0, block)
        yield from self.wait(self.full["o"][stage], tile // ROW_STAGES % 2)
        if word["first"]:
            yield from self.wait(self.full["v"][0], block % 2)
        early = self.wrong == "V released before dP was read"
        if early and word["last"]:
            self.empty["v"][0].arrive(4)
        reads = value_reads, ("o", stage, tile)
        self.begin_read(*reads)
        yield
        self.end_read(*reads)
        self.empty["o"][stage].arrive(4)
        if word["last"] and not early:
            self.empty["v"][0].arrive(4)
        yield
        ahead = (tile + 1) % ROW_STAGES
        yield from self.wait(self.full["q"][ahead], (tile + 1) // ROW_STAGES % 2)
        following = self.words[(tile + 1) % WORD_SLOTS]
        key, reads = following["block"] % STAGES, [("q", stage, tile)]
        if following["first"]:
            yield from self.wait(self.full["k"][key], following["block"] // STAGES % 2)
        if following["tile"] is not None:
            reads += [("k", key, following["block"]), ("q", ahead, tile + 1)]
        self.begin_read(*reads)
        yield
        if self.wrong != "no wait for a free dS buffer":
            yield from self.wait(self.empty["ds"][ds_stage], tile // STAGES % 2 ^ 1)
        check(("ds", ds_stage) not in self.readers, "dS overwritten while it is read")
        self.ds[ds_stage][group] = tile
        self.full["ds"][ds_stage].arrive(4)
        yield
        self.end_read(*reads)
        self.empty["q"][stage].arrive(4)
        early = self.wrong == "work slot released with the first tile"
        if early and word["first"]:
            self.empty["work"][block % STAGES].arrive(4)
        if word["last"]:
            yield
            check(self.work[block % STAGES] == block, "the slot has another block")
            self.written.append((block, group))
            if not early:
                self.empty["work"][block % STAGES].arrive(4)
        yield
        return following

    def dq(self):
        for tile in range(sum(self.blocks) + 1):
            stage = tile % STAGES
            yield from self.wait(self.full["ds"][stage], tile // STAGES % 2)
            word = self.words[tile % WORD_SLOTS]
            if word["tile"] is None:
                return
            check(word["tile"] == tile and self.ds[stage] == [tile, tile], "the word or dS is of another tile")
            reads = [("k", word["block"] % STAGES, word["block"])]
            for half in range(2):
                self.begin_read(*reads)
                self.readers.append(("ds", stage))
                yield
                self.end_read(*reads)
                self.readers.remove(("ds", stage))
                check(self.ds[stage] == [tile, tile], "dS changed while it was read")
                if half == 1:
                    self.empty["ds"][stage].arrive(4)
                    early = self.wrong == "K released after the first tile"
                    if word["first" if early else "last"]:
                        self.empty["k"][word["block"] % STAGES].arrive(4)
                yield

    def run(self):
        roles = {"scheduler": self.scheduler(), "loader": self.loader(), "columns 0": self.columns(0),
                 "columns 1": self.columns(1), "dq": self.dq()}
        pace = {name: self.random.choice([1, 1, 3, 10]) for name in [*roles, "copies"]}
        waiting = 0
        while roles:
            names = list(roles) + (["copies"] if self.flying else [])
            name = self.random.choices(names, [pace[n] for n in names])[0]
            if name == "copies":
                buffer, index, what = self.flying.pop(self.random.randrange(len(self.flying)))
                self.data[buffer][index] = what
                self.full[buffer][index].land()
                waiting = 0
                continue
            try:
                waiting = waiting + 1 if next(roles[name]) else 0
            except StopIteration:
                del roles[name]
                waiting = 0
            check(waiting < 2000, "stall: all roles wait")
        check(sorted(self.written) == [(b, g) for b in range(len(self.blocks)) for g in range(2)], "a block is missing")


def outcome(schedules, wrong=None):
    """The first failure, with its seed; None if every schedule ends well."""
    for seed in range(schedules):
        try:
            Model(seed, wrong).run()
        except Failure as failure:
            return f"schedule {seed}: {' '.join(map(str, failure.args[0]))}"
    return None


def main(arguments):
    schedules = int(arguments[0]) if arguments else 60
    found = outcome(schedules)
    bad = found is not None
    print(f"the protocol: {found or f'{schedules} schedules end well'}")
    for wrong in WRONG:
        found = outcome(schedules, wrong)
        bad |= found is None
        print(f"{wrong}: {'found out, ' + found if found else 'NOT FOUND OUT'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
