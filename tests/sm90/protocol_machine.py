"""What backward_protocol_model.py runs on: mbarriers, copies that land at any time, reads that take time, words, and a
random schedule of roles. A role is a generator: it yields wherever another role may get ahead, True while it waits."""
import random

STAGES = 2  # of K, work slots and dS
IN_FLIGHT, STALE = "in flight", "anything that no copy writes"


class Failure(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Failure(" ".join(map(str, what)))


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


class Machine:
    """The shared memory of one CTA with `row_stages` buffers of Q and dO and `value_stages` of V."""

    def __init__(self, seed, row_stages, value_stages, word_slots):
        self.random = random.Random(seed)
        sizes = {"work": STAGES, "k": STAGES, "v": value_stages, "q": row_stages, "o": row_stages, "ds": STAGES}
        ring = lambda name, count: [Barrier(count) for _ in range(sizes[name])]
        self.full = {name: ring(name, 8 if name == "ds" else 1) for name in sizes}
        self.empty = {name: ring(name, 4 if name in ("k", "ds") else 8) for name in sizes}
        self.data = {name: [None] * sizes[name] for name in "kvqo"}
        self.ds = [[None, None] for _ in range(STAGES)]
        self.work = [None] * STAGES
        self.words, self.unread = [None] * word_slots, [set() for _ in range(word_slots)]
        self.readers, self.flying = [], []

    def wait_full(self, name, index, lap):
        while self.full[name][index].phase % 2 == lap % 2:
            yield True

    def wait_empty(self, name, index, lap):
        while self.empty[name][index].phase % 2 == lap % 2 ^ 1:
            yield True

    def copy(self, name, index, what):
        check((name, index) not in self.readers, name, "overwritten while it is read")
        self.full[name][index].arrive(copies=1)
        self.data[name][index] = IN_FLIGHT
        self.flying.append((name, index, what))
        yield

    def begin_read(self, reads):
        for name, index, what in reads:
            held = self.data[name][index]
            check(held == what or (what == STALE and held != IN_FLIGHT), name, "holds", held, "instead of", what)
            self.readers.append((name, index))
        return reads

    def end_read(self, reads):
        for name, index, what in reads:
            check(what in (STALE, self.data[name][index]), name, "became", self.data[name][index], "instead of", what)
            self.readers.remove((name, index))

    def post(self, word):
        slot = word.number % len(self.words)
        check(not self.unread[slot], "a word overwritten before it was read by", *sorted(map(str, self.unread[slot])))
        self.words[slot], self.unread[slot] = word, {0, 1, "dq"}

    def read_word(self, reader, number):
        slot = number % len(self.words)
        check(self.words[slot] is not None and self.words[slot].number == number, "the word is of another tile")
        self.unread[slot].discard(reader)
        return self.words[slot]

    def run(self, roles):
        pace = {name: self.random.choice([1, 1, 3, 10, 40]) for name in [*roles, "copies"]}
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
            check(waiting < 2000, "stall:", ", ".join(roles), "wait")
