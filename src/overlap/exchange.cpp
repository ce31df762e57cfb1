#include "overlap/exchange.hpp"

#include <algorithm>
#include <utility>

#include "core/check.hpp"

namespace flashmask::overlap {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

constexpr Tag kControl{Stage::control, -1, -1};
constexpr auto kInside = static_cast<std::size_t>(Link::inside);
constexpr auto kBetween = static_cast<std::size_t>(Link::between);

template <typename T>
std::vector<std::vector<std::atomic<T>>> counters(std::int32_t batch, std::int32_t chunks) {
  std::vector<std::vector<std::atomic<T>>> out;
  for (std::int32_t b = 0; b < batch; ++b) out.emplace_back(at(chunks));
  return out;
}

}  // namespace

Exchange::Exchange(Communicator& communicator, std::shared_ptr<const Routes> routes, std::size_t key_row_bytes,
                   std::size_t gradient_row_floats)
    : communicator_(communicator),
      routes_(std::move(routes)),
      owners_(routes_->owners),
      needs_(routes_->needs),
      gather_(routes_->gather),
      reduce_(routes_->reduce),
      layout_(routes_->layout),
      rank_(communicator.rank()),
      key_row_bytes_(key_row_bytes),
      gradient_row_floats_(gradient_row_floats),
      word_layout_{static_cast<std::int64_t>(needs_.batch()) * owners_.chunks(), owners_.chunks(), owners_.ranks,
                   layout_.most_inbound},
      unfinished_(counters<std::int64_t>(needs_.batch(), owners_.chunks())),
      seen_(counters<Epoch>(needs_.batch(), owners_.chunks())) {
  const auto rows = static_cast<std::size_t>(slots().rows);
  words_ = communicator_.allocate_words(word_layout_.count());
  keys_ = communicator_.allocate_buffer(rows * key_row_bytes_);
  gradients_ = communicator_.allocate_buffer(rows * gradient_row_floats_ * sizeof(float));
  inbound_ = communicator_.allocate_buffer(at(layout_.inbound[at(rank_)].rows) * gradient_row_floats_ * sizeof(float));
  lanes_[kInside] = communicator_.make_stream("inside");
  lanes_[kBetween] = communicator_.make_stream("between");
  sums_ = communicator_.make_stream("sums");
}

Exchange::~Exchange() {
  try {
    begin_call();
  } catch (const std::exception&) {  // NOLINT: whoever waits for this rank hears the same reason
  }
  lanes_[kInside].reset();
  lanes_[kBetween].reset();
  sums_.reset();
  communicator_.free_buffer(keys_);
  communicator_.free_buffer(gradients_);
  communicator_.free_buffer(inbound_);
  communicator_.free_words(words_);
}

std::byte* Exchange::keys(std::int32_t b, std::int32_t c) {
  return communicator_.buffer(keys_) + at(slots().row_of[at(b)][at(c)]) * key_row_bytes_;
}

float* Exchange::gradients() {
  return reinterpret_cast<float*>(communicator_.buffer(gradients_));
}

float* Exchange::gradients(std::int32_t b, std::int32_t c) {
  return gradients() + at(slots().row_of[at(b)][at(c)]) * gradient_row_floats_;
}

std::size_t Exchange::buffer_bytes() const {
  const auto gradient_rows = at(slots().rows + layout_.inbound[at(rank_)].rows);
  return at(slots().rows) * key_row_bytes_ + gradient_rows * gradient_row_floats_ * sizeof(float) +
         at(word_layout_.count()) * sizeof(Epoch);
}

void Exchange::begin_call() {
  for (auto& lane : lanes_) communicator_.synchronise(*lane);
  communicator_.synchronise(*sums_);
  ++epoch_;
  reducing_ = false;
  for (auto& asked : asked_) asked.assign(at(owners_.ranks), false);
}

void Exchange::before_first_put(Stream& stream, std::vector<bool>& asked, std::int32_t peer) {
  if (asked[at(peer)]) return;
  asked[at(peer)] = true;
  communicator_.wait(stream, {word(word_layout_.released(peer)), epoch_ - 1, peer, kControl});
}

void Exchange::queue_gather_put(const Transfer& t, Stream& stream) {
  const Tag tag{Stage::gather, t.batch, t.chunk};
  const Word arrived = word(word_layout_.gathered(t.batch, t.chunk));
  before_first_put(stream, asked_[static_cast<std::size_t>(t.link)], t.to);
  if (t.relay) communicator_.wait(stream, {arrived, epoch_, owners_.rank_of_chunk[at(t.chunk)], tag});
  const std::int64_t there = layout_.slots[at(t.to)].row_of[at(t.batch)][at(t.chunk)];
  communicator_.put(stream, {t.to, keys_, at(there) * key_row_bytes_, keys(t.batch, t.chunk),
                             at(owners_.rows_of(t.chunk)) * key_row_bytes_, arrived, epoch_, tag});
}

void Exchange::expect_all(const std::vector<Transfer>& transfers, Stage stage) {
  for (const Transfer& t : transfers) {
    if (t.to != rank_) continue;
    Put put;
    put.peer = t.from;
    put.tag = {stage, t.batch, t.chunk};
    put.value = epoch_;
    const auto rows = at(owners_.rows_of(t.chunk));
    if (stage == Stage::gather) {
      put.buffer = keys_;
      put.offset = at(slots().row_of[at(t.batch)][at(t.chunk)]) * key_row_bytes_;
      put.bytes = rows * key_row_bytes_;
      put.word = word(word_layout_.gathered(t.batch, t.chunk));
    } else {
      put.buffer = inbound_;
      put.offset = at(layout_.inbound[at(rank_)].row_of[at(t.inbound)]) * gradient_row_floats_ * sizeof(float);
      put.bytes = rows * gradient_row_floats_ * sizeof(float);
      put.word = word(word_layout_.arrived(t.inbound));
    }
    communicator_.expect(*lanes_[static_cast<std::size_t>(t.link)], put);
  }
}

void Exchange::start_gather() {
  gather_epoch_ = epoch_;
  for (std::int32_t b = 0; b < needs_.batch(); ++b) {
    for (const auto c : owners_.chunks_of[at(rank_)]) {
      if (needs_.needs(rank_, b, c)) communicator_.announce(word(word_layout_.gathered(b, c)), epoch_);
    }
  }
  expect_all(gather_.transfers, Stage::gather);
  for (const std::size_t lane : {kBetween, kInside}) {  // crossings take longest
    for (const auto i : gather_.sends[at(rank_)][lane]) queue_gather_put(gather_.transfers[at(i)], *lanes_[lane]);
  }
}

void Exchange::queue_reduce_put(const Transfer& t, bool combined, Stream& stream) {
  const Tag tag{Stage::reduce, t.batch, t.chunk};
  before_first_put(stream, asked_[static_cast<std::size_t>(t.link)], t.to);
  const std::int64_t complete =
      combined ? word_layout_.combined(t.batch, t.chunk) : word_layout_.ready(t.batch, t.chunk);
  communicator_.wait(stream, {word(complete), epoch_, rank_, tag});
  const std::size_t row_bytes = gradient_row_floats_ * sizeof(float);
  communicator_.put(stream,
                    {t.to, inbound_, at(layout_.inbound[at(t.to)].row_of[at(t.inbound)]) * row_bytes,
                     reinterpret_cast<const std::byte*>(gradients(t.batch, t.chunk)),
                     at(owners_.rows_of(t.chunk)) * row_bytes, word(word_layout_.arrived(t.inbound)), epoch_, tag});
}

void Exchange::queue_combine(const Combine& combine) {
  const Tag tag{Stage::reduce, combine.batch, combine.chunk};
  float* sum = gradients(combine.batch, combine.chunk);
  const std::size_t count = at(owners_.rows_of(combine.chunk)) * gradient_row_floats_;
  if (needs_.needs(rank_, combine.batch, combine.chunk)) {
    communicator_.wait(*sums_, {word(word_layout_.ready(combine.batch, combine.chunk)), epoch_, rank_, tag});
  }
  const auto* inbound = reinterpret_cast<const float*>(communicator_.buffer(inbound_));
  for (const auto i : combine.inputs) {
    const Transfer& t = reduce_.transfers[at(i)];
    communicator_.wait(*sums_, {word(word_layout_.arrived(t.inbound)), epoch_, t.from, tag});
    communicator_.add(*sums_, sum,
                      inbound + at(layout_.inbound[at(rank_)].row_of[at(t.inbound)]) * gradient_row_floats_, count);
  }
  if (combine.output >= 0) {
    communicator_.signal(*sums_, rank_, word(word_layout_.combined(combine.batch, combine.chunk)), epoch_, tag);
  }
}

void Exchange::start_reduce() {
  reducing_ = true;
  for (std::int32_t b = 0; b < needs_.batch(); ++b) {
    for (std::int32_t c = 0; c < owners_.chunks(); ++c) unfinished_[at(b)][at(c)].store(owners_.rows_of(c));
  }
  for (const auto& [b, c] : slots().outbox) {  // no own part: the sum starts at zero
    std::fill_n(gradients(b, c), at(owners_.rows_of(c)) * gradient_row_floats_, 0.0F);
  }
  expect_all(reduce_.transfers, Stage::reduce);
  std::vector<bool> combined(reduce_.transfers.size(), false);
  for (const Combine& combine : reduce_.combines[at(rank_)]) {
    if (combine.output >= 0) combined[at(combine.output)] = true;
    queue_combine(combine);
  }
  communicator_.signal(*sums_, rank_, word(word_layout_.summed()), epoch_, kControl);
  for (const std::size_t lane : {kBetween, kInside}) {
    for (const auto i : reduce_.sends[at(rank_)][lane]) {
      queue_reduce_put(reduce_.transfers[at(i)], combined[at(i)], *lanes_[lane]);
    }
  }
}

void Exchange::end_call() {
  // Behind the relays and puts of the lane, and behind the sums: then nothing of this call is read here any more.
  Stream& lane = *lanes_[kInside];
  communicator_.announce(word(word_layout_.attended()), epoch_);
  if (routes_->sources[at(rank_)].empty()) return;
  communicator_.wait(lane, {word(word_layout_.attended()), epoch_, rank_, kControl});
  if (reducing_) communicator_.wait(lane, {word(word_layout_.summed()), epoch_, rank_, kControl});
  for (const auto source : routes_->sources[at(rank_)]) {
    communicator_.signal(lane, source, word(word_layout_.released(rank_)), epoch_, kControl);
  }
}

void Exchange::await_sums() {
  communicator_.synchronise(*sums_);
}

void Exchange::await_chunk(std::int32_t b, std::int32_t c) {
  std::atomic<Epoch>& seen = seen_[at(b)][at(c)];
  if (seen.load(std::memory_order_acquire) >= gather_epoch_) return;
  std::int32_t from = owners_.rank_of_chunk[at(c)];
  const std::int32_t landing = gather_.landings[at(b)][at(c)][at(owners_.node_of(rank_))];
  if (landing >= 0 && landing != rank_) from = landing;
  communicator_.await({word(word_layout_.gathered(b, c)), gather_epoch_, from, {Stage::gather, b, c}});
  seen.store(gather_epoch_, std::memory_order_release);
}

void Exchange::finish_columns(std::int32_t b, std::int32_t c, std::int64_t rows) {
  if (unfinished_[at(b)][at(c)].fetch_sub(rows, std::memory_order_acq_rel) == rows) {
    communicator_.announce(word(word_layout_.ready(b, c)), epoch_);
  }
}

}  // namespace flashmask::overlap
