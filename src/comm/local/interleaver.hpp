// Runs the threads of a local world one at a time and decides at every step who goes on: the way to see interleavings
// that a real machine shows once in a million runs.
//
// A task is a thread. Between two steps (a step is an action that another task can see) only one task runs, so a run is
// determined by the choices made. `Systematic` enumerates all choice sequences with at most a given number of
// preemptions, depth first; `Random` draws them from a seed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace flashmask::comm {

/// Chooses among `options` tasks; option 0 is to go on with the present one when `can_continue`.
class Choices {
 public:
  virtual ~Choices() = default;
  virtual std::size_t choose(std::size_t options, bool can_continue) = 0;
};

class RandomChoices final : public Choices {
 public:
  explicit RandomChoices(std::uint64_t seed) : random_(seed) {}
  std::size_t choose(std::size_t options, bool can_continue) override;

 private:
  std::mt19937_64 random_;
};

/// Depth-first enumeration: run, then `advance()`, until it returns false.
class SystematicChoices final : public Choices {
 public:
  explicit SystematicChoices(std::size_t preemptions) : bound_(preemptions) {}
  std::size_t choose(std::size_t options, bool can_continue) override;
  /// Moves to the next choice sequence; false when all were seen.
  bool advance();
  [[nodiscard]] std::size_t depth() const { return taken_.size(); }

 private:
  struct Taken {
    std::size_t choice, options;
    bool can_continue;
  };
  std::vector<Taken> taken_;
  std::size_t position_ = 0;
  std::size_t bound_;
  std::size_t preemptions_ = 0;
};

class Interleaver {
 public:
  explicit Interleaver(Choices& choices) : choices_(choices) {}

  /// A task that will run on a thread of its own; called by a running task or before any runs.
  std::size_t add_task(std::string name);
  /// First and last call of a task's thread.
  void begin(std::size_t task);
  void end();
  /// From here on choices are asked for; before, tasks run until they block, lowest number first.
  void explore();

  /// An action that others can see comes next: somebody else may go first.
  void step();
  /// Blocks the present task until `ready`; `describe` tells what it waits for. Returns false when no task can ever go
  /// on (a deadlock): `deadlock()` then says who waits for what.
  bool wait_until(const std::function<bool()>& ready, const std::function<std::string()>& describe);
  [[nodiscard]] std::string deadlock() const;
  [[nodiscard]] std::int64_t steps() const { return steps_; }

 private:
  struct Task {
    std::string name;
    std::function<bool()> ready;  // empty: can run
    std::function<std::string()> describe;
    bool finished = false;
    std::condition_variable turn;
  };
  static constexpr std::size_t kNobody = ~std::size_t{0};

  [[nodiscard]] bool runnable(const Task& t) const { return !t.finished && (!t.ready || t.ready()); }
  void hand_over(std::unique_lock<std::mutex>& lock, std::size_t me, bool come_back);
  std::size_t pick(std::size_t me);

  Choices& choices_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::size_t current_ = kNobody;
  bool exploring_ = false;
  bool stuck_ = false;
  std::string deadlock_;
  std::int64_t steps_ = 0;
};

}  // namespace flashmask::comm
