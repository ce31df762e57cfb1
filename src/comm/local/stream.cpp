#include "comm/local/communicator.hpp"
#include "core/check.hpp"

namespace flashmask::comm {

LocalStream::LocalStream(LocalWorld& world, std::int32_t rank, std::string name)
    : world_(world), rank_(rank), name_(std::move(name)) {
  world_.watch(&gate_);
}

LocalStream::~LocalStream() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(gate_.mutex);
      stop_ = true;
      queue_.clear();
    }
    gate_.changed.notify_all();
    if (Interleaver* interleaver = world_.options().interleaver) {
      // The thread must have its turn to end before it can be joined.
      interleaver->wait_until([this] { return ended_; }, [] { return std::string(); });
    }
    thread_.join();
  }
  world_.unwatch(&gate_);
}

void LocalStream::enqueue(std::function<void()> work) {
  {
    const std::lock_guard lock(gate_.mutex);
    if (failure_) return;  // synchronise() reports it
    queue_.push_back(std::move(work));
  }
  gate_.changed.notify_all();
  if (!thread_.joinable()) {
    Interleaver* interleaver = world_.options().interleaver;
    const std::size_t task = interleaver ? interleaver->add_task(core::format("rank {} stream {}", rank_, name_)) : 0;
    thread_ = std::jthread([this, task] { run(task); });
  }
}

void LocalStream::run(std::size_t task) {
  Interleaver* interleaver = world_.options().interleaver;
  if (interleaver) interleaver->begin(task);
  while (true) {
    std::function<void()> work;
    {
      const auto ready = [this] { return stop_ || !queue_.empty(); };
      if (interleaver) interleaver->wait_until(ready, [] { return std::string(); });
      std::unique_lock lock(gate_.mutex);
      if (!interleaver) gate_.changed.wait(lock, ready);
      if (stop_) break;
      work = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
    }
    std::exception_ptr failure;
    try {
      work();
      bool last = false;
      {
        const std::lock_guard lock(gate_.mutex);
        last = queue_.empty();
      }
      if (last) flush_held();
    } catch (const std::exception& e) {
      failure = std::current_exception();
      world_.cancel(e.what());
    }
    {
      const std::lock_guard lock(gate_.mutex);
      busy_ = false;
      if (failure) {
        failure_ = failure;
        queue_.clear();
      }
    }
    gate_.changed.notify_all();
  }
  held_.clear();
  ended_ = true;  // read by the destructor's turn alone; without an interleaver it joins
  if (interleaver) interleaver->end();
}

void LocalStream::flush_held() {
  auto held = std::move(held_);
  held_.clear();
  for (auto& message : held) message();
}

void LocalStream::sleep(std::chrono::milliseconds time) {
  std::unique_lock lock(gate_.mutex);
  gate_.changed.wait_for(lock, time, [this] { return world_.cancelled() || stop_; });
}

void LocalStream::synchronise() {
  const auto idle = [this] { return queue_.empty() && !busy_; };
  if (Interleaver* interleaver = world_.options().interleaver) {
    interleaver->wait_until(idle, [] { return std::string(); });
  }
  std::unique_lock lock(gate_.mutex);
  gate_.changed.wait(lock, idle);  // every piece of work has a deadline of its own
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace flashmask::comm
