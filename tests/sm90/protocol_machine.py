"""What the models of the backward's barriers run on: mbarriers, copies that land at any time, reads that take time,
words, and a random schedule of roles. A role is a generator: it yields wherever another role may get ahead; while it
waits for one phase of a barrier, it yields one and the same object."""
import random

STAGES = 2  # of work slots and dS, and of K where there is room
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
    """The shared memory of one CTA: buffers of Q and dO, of V, and slots for words; `sizes` of other and more rings."""

    def __init__(self, random, row_stages, value_stages, word_slots, **sizes):
        self.random = random
        sizes = {"work": STAGES, "k": STAGES, "v": value_stages, "q": row_stages, "o": row_stages, "ds": STAGES} | sizes
        ring = lambda name, count: [Barrier(count) for _ in range(sizes[name])]
        self.full = {name: ring(name, 8 if name == "ds" else 1) for name in sizes}
        self.empty = {name: ring(name, 4 if name in ("k", "ds") else 8) for name in sizes}
        self.data = {name: [None] * sizes[name] for name in "kvqo"}
        self.ds = [[None, None] for _ in range(STAGES)]
        self.work = [None] * STAGES
        self.words, self.unread = [None] * word_slots, [set() for _ in range(word_slots)]
        self.word_readers, self.readers, self.flying = {0, 1, "dq"}, [], []

    def wait_full(self, name, index, lap):
        waiting = object()
        while self.full[name][index].phase % 2 == lap % 2:
            yield waiting

    def wait_empty(self, name, index, lap):
        waiting = object()
        while self.empty[name][index].phase % 2 == lap % 2 ^ 1:
            yield waiting

    def copy(self, name, index, what):
        self.full[name][index].arrive(copies=1)
        self.issue(name, index, what, self.full[name][index])
        yield

    def issue(self, name, index, what, barrier):
        """Starts a copy to this CTA; `barrier` has been told of it, or will be."""
        check((name, index) not in self.readers, name, "overwritten while it is read")
        self.data[name][index] = IN_FLIGHT
        self.flying.append(lambda: self.land(name, index, what, barrier))

    def land(self, name, index, what, barrier):
        self.data[name][index] = what
        barrier.land()

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
        self.words[slot], self.unread[slot] = word, set(self.word_readers)

    def read_word(self, reader, number):
        slot = number % len(self.words)
        check(self.words[slot] is not None and self.words[slot].number == number, "the word is of another tile")
        self.unread[slot].discard(reader)
        return self.words[slot]


def outcome(schedules, model):
    """The first failure of model(seed).check_schedule(), with its seed; None if every schedule ends well."""
    for seed in range(schedules):
        try:
            model(seed).check_schedule()
        except Failure as failure:
            return f"schedule {seed}: {failure}"
    return None


def run(random, roles, flying):
    """Runs the roles, of which one at random takes a step, or what one of `flying` stands for happens, until all have
    ended. Who has looked in vain since anything last happened is not asked again before something does; when that is
    all of them, they stall."""
    pace = {name: random.choice([1, 1, 3, 10, 40]) for name in [*roles, "copies"]}
    waits, waiting = {}, set()
    while roles:
        names = [name for name in roles if name not in waiting] + (["copies"] if flying else [])
        check(names, "stall:", ", ".join(map(str, roles)), "wait")
        name = random.choices(names, [pace[n] for n in names])[0]
        if name == "copies":
            flying.pop(random.randrange(len(flying)))()
            waiting.clear()
            continue
        try:
            wait = next(roles[name])
        except StopIteration:
            del roles[name]
            waiting.clear()
            continue
        if wait is None or waits.get(name) is not wait:
            waiting.clear()
        else:
            waiting.add(name)
        waits[name] = wait
