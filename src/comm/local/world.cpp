#include "comm/local/world.hpp"

#include <algorithm>
#include <new>
#include <thread>

#include "core/check.hpp"

namespace flashmask::comm {
namespace {
constexpr std::size_t kAlignment = 64;
void free_aligned(std::byte* p) {
  ::operator delete[](p, std::align_val_t{kAlignment});
}
}  // namespace

Buffer::Buffer(std::size_t n)
    : data(static_cast<std::byte*>(::operator new[](std::max<std::size_t>(n, 1), std::align_val_t{kAlignment})),
           &free_aligned),
      bytes(n) {}

void AtomicCounters::count(Tag tag, Link link, std::size_t n) {
  const auto s = static_cast<std::size_t>(tag.stage);
  const auto l = static_cast<std::size_t>(link);
  bytes[s][l].fetch_add(static_cast<std::int64_t>(n), std::memory_order_relaxed);
  messages[s][l].fetch_add(1, std::memory_order_relaxed);
}

LinkCounters AtomicCounters::read() const {
  LinkCounters out;
  for (std::size_t s = 0; s < kStages; ++s) {
    for (std::size_t l = 0; l < kLinks; ++l) {
      out.bytes[s][l] = bytes[s][l].load(std::memory_order_relaxed);
      out.messages[s][l] = messages[s][l].load(std::memory_order_relaxed);
    }
  }
  return out;
}

LocalWorld::LocalWorld(LocalOptions options) : options_(std::move(options)) {
  core::check(options_.ranks >= 1 && options_.ranks <= 4096, "ranks = {}: allowed are 1 to 4096 threads",
              options_.ranks);
  core::check(options_.nodes >= 1 && options_.nodes <= options_.ranks,
              "nodes = {} with {} ranks: allowed are 1 to the number of ranks", options_.nodes, options_.ranks);
  for (std::int32_t r = 0; r < options_.ranks; ++r) {
    gates_.push_back(std::make_unique<Gate>());
    sent_.push_back(std::make_unique<AtomicCounters>());
    received_.push_back(std::make_unique<AtomicCounters>());
  }
}

std::int32_t LocalWorld::node_of(std::int32_t rank) const {
  return static_cast<std::int32_t>(static_cast<std::int64_t>(rank) * options_.nodes / options_.ranks);
}

void LocalWorld::step() {
  if (options_.interleaver) options_.interleaver->step();
}

void LocalWorld::notify(Gate& gate) {
  { const std::lock_guard lock(gate.mutex); }
  gate.changed.notify_all();
}

void LocalWorld::block(Gate& gate, std::int32_t rank, const std::function<bool()>& ready,
                       const std::function<std::string()>& describe) {
  bool came = true;
  if (options_.interleaver) {
    came = options_.interleaver->wait_until([&] { return ready() || cancelled(); }, describe);
  } else if (!ready()) {
    std::list<const std::function<std::string()>*>::iterator mine;
    {
      const std::lock_guard lock(waits_mutex_);
      mine = waits_.insert(waits_.end(), &describe);
    }
    {
      std::unique_lock lock(gate.mutex);
      came = gate.changed.wait_for(lock, options_.deadline, [&] { return ready() || cancelled(); });
    }
    if (!came) cancel(describe_waits(describe));  // while this wait is still listed: another may be describing all
    {
      const std::lock_guard lock(waits_mutex_);
      waits_.erase(mine);
    }
    if (!came) core::fail(ErrorCode::timeout, "{}", reason());
  }
  if (came && !cancelled()) return;
  if (came) core::fail(ErrorCode::timeout, "rank {} stopped because another rank did: {}", rank, reason());
  const std::string text = "deadlock: " + options_.interleaver->deadlock();
  cancel(text);
  core::fail(ErrorCode::timeout, "{}", text);
}

std::string LocalWorld::describe_waits(const std::function<std::string()>& mine) const {
  // Whoever times out first may only be waiting for a rank that itself waits: name every wait, so that the cause is
  // there.
  std::string text = core::format("{} for {} ms", mine(), options_.deadline.count());
  const std::lock_guard lock(waits_mutex_);
  for (const auto* describe : waits_) {
    if (describe != &mine) text += "; meanwhile " + (*describe)();
  }
  return text;
}

void LocalWorld::cancel(const std::string& reason) {
  std::vector<Gate*> gates;
  {
    const std::lock_guard lock(reason_mutex_);
    if (cancelled()) return;
    reason_ = reason;
    cancelled_.store(true, std::memory_order_release);
    for (Gate* gate : watched_) notify(*gate);
  }
  for (const auto& gate : gates_) notify(*gate);
  notify(rounds_gate_);
}

std::string LocalWorld::reason() const {
  const std::lock_guard lock(reason_mutex_);
  return reason_;
}

void LocalWorld::watch(Gate* gate) {
  const std::lock_guard lock(reason_mutex_);
  watched_.push_back(gate);
}

void LocalWorld::unwatch(Gate* gate) {
  const std::lock_guard lock(reason_mutex_);
  std::erase(watched_, gate);
}

std::vector<std::shared_ptr<void>> LocalWorld::exchange(std::int32_t rank, std::uint64_t round,
                                                        std::shared_ptr<void> mine) {
  const auto ranks = static_cast<std::size_t>(options_.ranks);
  Round* here = nullptr;
  bool last = false;
  {
    const std::lock_guard lock(rounds_gate_.mutex);
    here = &rounds_[round];
    here->objects.resize(ranks);
    here->objects[static_cast<std::size_t>(rank)] = std::move(mine);
    last = ++here->arrived == options_.ranks;
  }
  if (last) rounds_gate_.changed.notify_all();  // earlier there is nothing to wake for, and a crowd to wake
  const auto everybody = [&] { return here->arrived == options_.ranks; };
  if (options_.interleaver) {  // one task at a time: no lock needed to look
    block(rounds_gate_, rank, everybody,
          [&] { return core::format("rank {} waits for every rank in set-up round {}", rank, round); });
  } else {
    std::unique_lock lock(rounds_gate_.mutex);
    if (!rounds_gate_.changed.wait_for(lock, options_.setup_deadline, [&] { return everybody() || cancelled(); })) {
      std::string missing;
      for (std::size_t r = 0; r < ranks; ++r) {
        if (!here->objects[r]) missing += core::format("{}{}", missing.empty() ? "" : ", ", r);
      }
      lock.unlock();
      const auto text = core::format(
          "rank {} waited {} ms in set-up round {} for rank(s) {}: every rank must make the same set-up calls", rank,
          options_.setup_deadline.count(), round, missing);
      cancel(text);
      core::fail(ErrorCode::timeout, "{}", text);
    }
    if (!everybody()) {
      lock.unlock();
      core::fail(ErrorCode::timeout, "rank {} stopped because another rank did: {}", rank, reason());
    }
  }
  const std::lock_guard lock(rounds_gate_.mutex);
  auto objects = here->objects;
  if (++here->left == options_.ranks) rounds_.erase(round);
  return objects;
}

std::vector<std::exception_ptr> run_ranks(LocalWorld& world, const std::function<void(Communicator&)>& body) {
  const auto ranks = static_cast<std::size_t>(world.options().ranks);
  Interleaver* interleaver = world.options().interleaver;
  std::vector<std::exception_ptr> errors(ranks);
  std::vector<std::size_t> tasks(ranks);
  for (std::size_t r = 0; interleaver && r < ranks; ++r) tasks[r] = interleaver->add_task(core::format("rank {}", r));
  {
    std::vector<std::jthread> threads;
    threads.reserve(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        if (interleaver) interleaver->begin(tasks[r]);
        try {
          const auto communicator = make_local(world, static_cast<std::int32_t>(r));
          body(*communicator);
        } catch (const std::exception& e) {
          errors[r] = std::current_exception();
          world.cancel(core::format("rank {}: {}", r, e.what()));
        } catch (...) {
          errors[r] = std::current_exception();
          world.cancel(core::format("rank {} threw something that is no std::exception", r));
        }
        if (interleaver) interleaver->end();
      });
    }
  }
  return errors;
}

void run_ranks_or_throw(LocalWorld& world, const std::function<void(Communicator&)>& body) {
  const auto errors = run_ranks(world, body);
  std::exception_ptr first;
  for (const auto& error : errors) {
    if (!error) continue;
    if (!first) first = error;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      if (std::string(e.what()).find("stopped because another rank did") == std::string::npos) throw;
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace flashmask::comm
