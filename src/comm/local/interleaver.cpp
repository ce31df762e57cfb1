#include "comm/local/interleaver.hpp"

namespace flashmask::comm {
namespace {
thread_local std::size_t this_task = 0;
}  // namespace

std::size_t RandomChoices::choose(std::size_t options, bool) {
  return std::uniform_int_distribution<std::size_t>(0, options - 1)(random_);
}

std::size_t SystematicChoices::choose(std::size_t options, bool can_continue) {
  if (can_continue && preemptions_ >= bound_) return 0;
  if (position_ == taken_.size()) taken_.push_back({0, options, can_continue});
  const Taken& t = taken_[position_++];
  if (t.can_continue && t.choice != 0) ++preemptions_;
  return t.choice;
}

bool SystematicChoices::advance() {
  position_ = 0;
  preemptions_ = 0;
  while (!taken_.empty() && taken_.back().choice + 1 == taken_.back().options) taken_.pop_back();
  if (taken_.empty()) return false;
  ++taken_.back().choice;
  return true;
}

std::size_t Interleaver::add_task(std::string name) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::make_unique<Task>());
  tasks_.back()->name = std::move(name);
  return tasks_.size() - 1;
}

void Interleaver::begin(std::size_t task) {
  std::unique_lock lock(mutex_);
  this_task = task;
  if (current_ == kNobody) current_ = 0;
  tasks_[task]->turn.wait(lock, [&] { return current_ == task; });
}

void Interleaver::end() {
  std::unique_lock lock(mutex_);
  tasks_[this_task]->finished = true;
  hand_over(lock, this_task, false);
}

void Interleaver::explore() {
  const std::lock_guard lock(mutex_);
  exploring_ = true;
}

std::size_t Interleaver::pick(std::size_t me) {
  std::vector<std::size_t> options;
  const bool can_continue = runnable(*tasks_[me]);
  if (can_continue) options.push_back(me);
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    if (t != me && runnable(*tasks_[t])) options.push_back(t);
  }
  if (options.empty()) return kNobody;
  if (options.size() == 1 || !exploring_) return options.front();
  return options[choices_.choose(options.size(), can_continue)];
}

void Interleaver::hand_over(std::unique_lock<std::mutex>& lock, std::size_t me, bool come_back) {
  ++steps_;
  std::size_t next = pick(me);
  if (next == kNobody) {
    for (std::size_t t = 0; t < tasks_.size() && next == kNobody; ++t) {
      if (!tasks_[t]->finished) next = t;
    }
    if (next == kNobody) return;  // every task has ended
    if (!stuck_) {
      stuck_ = true;
      for (const auto& t : tasks_) {
        const std::string what = t->finished || !t->describe ? "" : t->describe();  // an idle stream says nothing
        if (!what.empty()) deadlock_ += (deadlock_.empty() ? "" : "; ") + what;
      }
    }
  }
  current_ = next;
  if (next == me) return;
  tasks_[next]->turn.notify_one();
  if (come_back) tasks_[me]->turn.wait(lock, [&] { return current_ == me; });
}

void Interleaver::step() {
  std::unique_lock lock(mutex_);
  hand_over(lock, this_task, true);
}

bool Interleaver::wait_until(const std::function<bool()>& ready, const std::function<std::string()>& describe) {
  std::unique_lock lock(mutex_);
  Task& me = *tasks_[this_task];
  me.ready = ready;
  me.describe = describe;
  hand_over(lock, this_task, true);
  const bool came = ready();
  me.ready = nullptr;
  return came;
}

std::string Interleaver::deadlock() const {
  const std::lock_guard lock(mutex_);
  return deadlock_;
}

}  // namespace flashmask::comm
