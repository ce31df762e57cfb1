// Whether a node has light chunks enough beside its heavy ones: what capacity alone does not see.
#pragma once

#include <cstdint>
#include <vector>

#include "balance/instance.hpp"

namespace flashmask::balancing {

/// A long prefix gives dozens of chunks of one load h, q = floor(target / h) of which fit a rank. A node of R ranks
/// that holds more than (q - 1) R chunks of at least h fills some ranks with q of them, and each of these ranks has
/// target - q h left for its other chunks. So k chunks must be light: S_k, the sum of the k lightest of the node, is at
/// most ranks * (target - q h). For any mu, S_k >= k mu - sum of max(0, mu - w) over all chunks w of the node; with mu
/// the k-th lightest of the whole instance that is linear in what a node holds, and costs two sums.
class Company {
 public:
  /// What some chunks bring: how many are heavy, and how far the light ones lie below mu together.
  struct Share {
    std::int64_t heavy, light;
    Share& operator+=(const Share& other) { return heavy += other.heavy, light += other.light, *this; }
    Share& operator-=(const Share& other) { return heavy -= other.heavy, light -= other.light, *this; }
    friend Share operator+(Share a, const Share& b) { return a += b; }
    friend Share operator-(Share a, const Share& b) { return a -= b; }
  };

  /// `target` is the normalised load that a rank may hold. Speeds, unequal loads everywhere and room enough leave it
  /// without effect.
  Company(const Instance& in, std::int64_t target);

  [[nodiscard]] bool applies() const { return need_ > 0; }
  /// Of chunks [begin, begin + length).
  [[nodiscard]] Share of(std::size_t begin, std::size_t length) const {
    return prefix_[begin + length] - prefix_[begin];
  }
  /// Load by which the chunks of a node of `ranks` ranks are too heavy to keep each other company; 0: they are not.
  [[nodiscard]] std::int64_t missing(std::int64_t ranks, const Share& node) const {
    const std::int64_t filled = node.heavy - (together_ - 1) * ranks;
    if (filled <= 0) return 0;
    const Int128 over = Int128{filled} * need_ - node.light;
    return over <= 0 ? 0 : static_cast<std::int64_t>(over);
  }

 private:
  std::int64_t together_ = 0;  // q
  std::int64_t need_ = 0;      // how far below mu a rank's light chunks must lie together
  std::vector<Share> prefix_;
};

}  // namespace flashmask::balancing
