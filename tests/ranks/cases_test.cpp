// The numbered cases that need running ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "flashmask/localise.hpp"
#include "ranks/ranks_support.hpp"
#include "support/wrapped_communicator.hpp"

namespace flashmask {
namespace {

using std::int64_t;
using testing::Call;
using testing::causal_documents;
using testing::LocalCall;
using testing::plan_of;
using Ints = std::vector<int64_t>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // a tenth of the speed: smaller sizes, the same paths
#else
constexpr bool kSanitized = false;
#endif

constexpr PlanKind kAnySize[] = {PlanKind::hcc_ipo, PlanKind::contiguous, PlanKind::dual_chunk, PlanKind::lpt};

std::string text_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

/// Sum over rows of exp(LSE) with Q = 0: the visible cells, end to end.
double count_probe(Call& call, const Plan& plan) {
  call.q.fill(0);
  comm::LocalWorld world(testing::world_options(plan));
  testing::run_on_ranks(call, plan, world);
  double cells = 0;
  for (const float lse : call.lse) cells += std::exp(static_cast<double>(lse));
  return cells;
}

TEST(Cases, C5_visible_cells_are_those_of_the_mask_for_every_plan) {
  const auto mask = causal_documents({3, 5, 2, 4, 2}, 16);
  for (const PlanKind kind : kAnySize) {
    const Plan plan = plan_of(mask, 2, 1, 2, kind);
    int64_t local_cells = 0;
    for (int64_t r = 0; r < 2; ++r) {
      std::vector<std::int32_t> chunks(plan.chunks_of(r).begin(), plan.chunks_of(r).end());
      local_cells += localise(mask, RankRows{16, 2, chunks}).canonicalise().visible_cells();
    }
    EXPECT_EQ(local_cells, 37);
    Call call({1, 16, 16, 1, 1, 8}, mask, DType::f32);
    EXPECT_NEAR(count_probe(call, plan), 37, 1e-3) << to_string(kind);
  }
}

TEST(Cases, C5_per_document_chunks_take_whole_pieces_alone_and_then_lose_no_cell) {
  const auto short_mask = causal_documents({3, 5, 2, 4, 2}, 16);
  EXPECT_THROW(plan_of(short_mask, 2, 1, 2, PlanKind::per_document_dual_chunk, {3, 5, 2, 4, 2}), Error);
  const Ints documents{12, 20, 8, 16, 8};  // four times as long, in pieces of one token: 4 tokens a document at least
  const auto mask = causal_documents(documents, 64);
  const Plan plan = plan_of(mask, 2, 1, 1, PlanKind::per_document_dual_chunk, documents);
  int64_t local_cells = 0;
  for (int64_t r = 0; r < 2; ++r) {
    std::vector<std::int32_t> chunks(plan.chunks_of(r).begin(), plan.chunks_of(r).end());
    local_cells += localise(mask, RankRows{64, 1, chunks}).canonicalise().visible_cells();
  }
  EXPECT_EQ(local_cells, 78 + 210 + 36 + 136 + 36);
  Call call({1, 64, 64, 1, 1, 8}, mask, DType::f32);
  EXPECT_NEAR(count_probe(call, plan), 496, 1e-3);
}

TEST(Cases, C7_padding_falls_on_no_real_row) {
  const auto mask = causal_documents({698}, 704);
  const Plan plan = plan_of(mask, 4, 1, 88, PlanKind::dual_chunk);
  Ints real(4, 0);
  for (int64_t r = 0; r < 4; ++r) {
    for (const auto row : global_rows(plan, r)) real[static_cast<std::size_t>(r)] += row < 698;
  }
  EXPECT_EQ(real, (Ints{170, 176, 176, 176}));
  Call call({1, 704, 704, 1, 1, 8}, mask, DType::bf16);
  comm::LocalWorld world(testing::world_options(plan));
  testing::run_on_ranks(call, plan, world);
  for (int64_t row = 0; row < 704; ++row) {
    bool zero = true;
    for (int64_t d = 0; d < 8; ++d) zero = zero && call.out.get(0, row, 0, d) == 0;
    EXPECT_EQ(zero, row >= 698) << "row " << row;
    EXPECT_EQ(std::isinf(call.lse_at(0, 0, row)), row >= 698);
  }
  testing::expect_matches_oracle(call);
}

TEST(Cases, C8_no_padding_at_all) {
  const auto mask = causal_documents({137, 2041, 89}, 2267);
  for (const auto& [chunk, chunks, last] :
       {std::tuple<int64_t, int64_t, int64_t>{128, 18, 91}, {64, 36, 27}, {16, 142, 11}}) {
    const Plan plan = plan_of(mask, 8, 2, chunk, PlanKind::hcc_ipo);
    ASSERT_EQ(plan.chunks(), chunks);
    EXPECT_EQ(plan.chunk_end(chunks - 1) - plan.chunk_begin(chunks - 1), last);
    int64_t rows = 0;
    for (int64_t r = 0; r < 8; ++r) {
      rows += plan.rows_of(r);
      const auto count = static_cast<int64_t>(plan.chunks_of(r).size());
      EXPECT_TRUE(count == chunks / 8 || count == chunks / 8 + 1);
    }
    EXPECT_EQ(rows, 2267);
    if (kSanitized && chunk != 16) continue;  // the same code: the one with most chunks runs through
    Call call({1, 2267, 2267, 1, 1, 8}, mask, DType::bf16);
    if (kSanitized) {  // the oracle of so many rows takes half a minute there: rows count what they see instead
      count_probe(call, plan);
      const auto counts = mask.row_counts(0, 0);
      for (int64_t row = 0; row < 2267; ++row) {
        const auto count = static_cast<double>(counts[static_cast<std::size_t>(row)]);
        ASSERT_NEAR(std::exp(static_cast<double>(call.lse_at(0, 0, row))), count, 0.25) << "row " << row;
      }
      continue;
    }
    comm::LocalWorld world(testing::world_options(plan));
    testing::run_on_ranks(call, plan, world);
    testing::expect_matches_oracle(call);
  }
}

TEST(Cases, C10_a_chunk_that_only_looks_needed_is_not_sent) {
  const std::int32_t lts[] = {4, 4, 8, 8, 8, 8, 8, 8}, ute[] = {0, 0, 8, 8, 0, 0, 0, 0};
  ColumnMask mask({1, 1, 8, 8});
  for (int j = 0; j < 8; ++j) mask.set(0, 0, j, {lts[j], 8, 0, ute[j]});
  mask.canonicalise();
  const Plan plan = plan_of(mask, 2, 1, 4, PlanKind::contiguous);
  Call call({1, 8, 8, 1, 1, 8}, mask, DType::f32);
  comm::LocalWorld world(testing::world_options(plan));
  testing::run_on_ranks(call, plan, world);
  EXPECT_EQ(world.received(1).read().bytes_of(Stage::gather, Link::inside), 0);
  testing::expect_matches_oracle(call);
}

TEST(Cases, C11_batch_rows_with_masks_of_their_own) {
  const std::vector<ColumnMask> parts{causal_documents({16}, 16), causal_documents({4, 4, 4, 4}, 16)};
  const auto mask = masks::stack_batch(parts);
  const Plan plan = plan_of(mask, 4, 2, 2, PlanKind::dual_chunk);
  Call call({2, 16, 16, 2, 1, 8}, mask, DType::bf16);
  auto options = testing::world_options(plan);
  std::atomic<int> foreign{0};
  options.faults = [&](const comm::MessageInfo& m) {  // batch row 1: only ranks that hold half of a document hear of it
    if (m.tag.stage == Stage::gather && m.tag.batch == 1) {
      bool owns = false;
      for (const auto c : plan.chunks_of(m.to)) owns = owns || c / 2 == m.tag.chunk / 2;
      foreign += owns ? 0 : 1;
    }
    return comm::Fault{};
  };
  comm::LocalWorld world(options);
  testing::run_on_ranks(call, plan, world);
  EXPECT_EQ(foreign, 0);
  testing::expect_matches_oracle(call);
}

/// Worst deviations of sampled rows and columns from float64.
struct Worst {
  double out, lse, dq, dk, dv;
};

struct Sampled {
  std::vector<int64_t> places;
  cpu::reference::RowValues forward;
  cpu::reference::Values dq;
  cpu::reference::ColumnValues gradients;
  explicit Sampled(Call& call) {
    for (int64_t i = 5; i < call.shape.rows; i += 211) places.push_back(i);
    const auto problem = cpu::reference::problem_of(call.backward_arguments());
    const auto exact = cpu::reference::Precision::float64;
    forward = cpu::reference::forward_rows(problem, 0, 0, places, exact, 2);
    dq = cpu::reference::dq_rows(problem, 0, 0, places, exact, 2);
    gradients = cpu::reference::dkdv_columns(problem, 0, 0, places, exact, 2);
  }
  [[nodiscard]] double worst(const testing::Tensor& got, const std::vector<double>& expected, int64_t dim) const {
    double w = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      for (int64_t d = 0; d < dim; ++d) {
        w = std::max(w, std::abs(static_cast<double>(got.get(0, places[i], 0, d)) - expected[i * dim + d]));
      }
    }
    return w;
  }
  [[nodiscard]] Worst compare(const Call& call) const {
    const int64_t dim = call.shape.head_dim;
    double lse = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      lse = std::max(lse, std::abs(static_cast<double>(call.lse_at(0, 0, places[i])) - forward.lse.values[i]));
    }
    return {worst(call.out, forward.out.values, dim), lse, worst(call.dq, dq.values, dim),
            worst(call.dk, gradients.dk.values, dim), worst(call.dv, gradients.dv.values, dim)};
  }
};

TEST(Cases, C16_errors_do_not_grow_with_the_number_of_ranks) {
  const int64_t rows = kSanitized ? 1024 : 4096;
  const auto mask = causal_documents({rows * 3 / 8 - 36, 37, rows / 2, rows / 8 - 1}, rows);
  Call one({1, rows, rows, 1, 1, 64}, mask, DType::bf16);
  one.run();
  const Sampled exact(one);
  const Worst single = exact.compare(one);
  for (const int64_t ranks : {1, 2, 4, 8}) {
    if (kSanitized && ranks == 2) continue;
    const Plan plan = plan_of(mask, ranks, ranks > 2 ? 2 : 1, 128, PlanKind::hcc_ipo);
    Call call({1, rows, rows, 1, 1, 64}, mask, DType::bf16);
    comm::LocalWorld world(testing::world_options(plan));
    testing::run_on_ranks(call, plan, world);
    const Worst w = exact.compare(call);
    // Half a unit of bf16 dominates both sides; a quarter more allows for a rounding that falls the other way.
    EXPECT_LE(w.out, 1.25 * single.out) << ranks;
    EXPECT_LE(w.lse, 1.25 * single.lse + 1e-6) << ranks;
    EXPECT_LE(w.dq, 1.25 * single.dq) << ranks;
    EXPECT_LE(w.dk, 1.25 * single.dk) << ranks;
    EXPECT_LE(w.dv, 1.25 * single.dv) << ranks;
  }
}

/// Sends, instead of every gathered chunk, the keys and values of a chunk that the receiver owns.
class LocalInsteadOfRemote final : public testing::WrappedCommunicator {
 public:
  LocalInsteadOfRemote(Communicator& inner, std::vector<std::vector<std::byte>>& first_chunks)
      : WrappedCommunicator(inner), first_chunks_(first_chunks) {}
  void put(Stream& stream, const Put& put) override {
    Put changed = put;
    if (put.tag.stage == Stage::gather) changed.source = first_chunks_[static_cast<std::size_t>(put.peer)].data();
    WrappedCommunicator::put(stream, changed);
  }

 private:
  std::vector<std::vector<std::byte>>& first_chunks_;
};

TEST(Cases, C16_local_keys_in_place_of_remote_ones_are_seen_by_the_gradient_check) {
  const auto mask = causal_documents({50, 46}, 96);
  const Plan plan = plan_of(mask, 2, 1, 16, PlanKind::dual_chunk);
  Call call({1, 96, 96, 1, 1, 8}, mask, DType::bf16);
  std::vector<std::vector<std::byte>> first(2);
  for (int64_t r = 0; r < 2; ++r) {
    const LocalCall local(call, plan, r);
    for (int64_t row = 0; row < 16; ++row) {
      for (const auto* t : {&local.k, &local.v}) {
        const auto* bytes = reinterpret_cast<const std::byte*>(t->bytes().data()) + row * 16;
        first[static_cast<std::size_t>(r)].insert(first[static_cast<std::size_t>(r)].end(), bytes, bytes + 16);
      }
    }
  }
  comm::LocalWorld world(testing::world_options(plan));
  comm::run_ranks_or_throw(world, [&](Communicator& inner) {
    LocalInsteadOfRemote communicator(inner, first);
    ContextParallel context(call.mask, plan, communicator, testing::shape_of(call));
    LocalCall local(call, plan, inner.rank());
    local.forward(context);
    local.backward(context);
    local.store(call);
  });
  using cpu::reference::Precision;
  const auto problem = cpu::reference::problem_of(call.backward_arguments());
  const auto exact = cpu::reference::backward(problem, Precision::float64, 1);
  const auto naive = cpu::reference::backward(problem, Precision::input, 1);
  for (const auto& [got, e, n] : {std::tuple{&call.dq, &exact.dq, &naive.dq},
                                  {&call.dk, &exact.dk, &naive.dk},
                                  {&call.dv, &exact.dv, &naive.dv}}) {
    EXPECT_GT(deviation(got->values(), e->values).error, 2 * tolerance(*e, *n, DType::bf16));
  }
}

TEST(Cases, C18_dead_columns_and_dead_rows_move_nothing) {
  // Rank 1's columns are seen by its own rows alone; rank 2's rows see nothing.
  ColumnMask mask({1, 1, 24, 24});
  for (std::int32_t j = 0; j < 24; ++j)
    mask.set(0, 0, j, j >= 8 && j < 16 ? HiddenRows{16, 24, 0, 8} : HiddenRows{16, 24, 0, 0});
  mask.canonicalise();
  const Plan plan = plan_of(mask, 3, 1, 4, PlanKind::contiguous);
  Call call({1, 24, 24, 2, 2, 8}, mask, DType::bf16);
  comm::LocalWorld world(testing::world_options(plan));
  testing::run_on_ranks(call, plan, world);
  EXPECT_EQ(world.sent(1).read().bytes_of(Stage::gather, Link::inside), 0);
  EXPECT_EQ(world.received(2).read().bytes_of(Stage::gather, Link::inside), 0);
  EXPECT_EQ(world.sent(2).read().bytes_of(Stage::reduce, Link::inside), 0);
  testing::expect_matches_oracle(call);
  for (const auto* t : {&call.dq, &call.dk, &call.dv}) {
    for (const double x : t->values()) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST(Cases, C19_two_masks_of_equal_size_do_not_mix) {
  const auto first_mask = causal_documents({20, 12}, 32), second_mask = causal_documents({5, 27}, 32);
  const Plan first_plan = plan_of(first_mask, 4, 2, 4, PlanKind::hcc_ipo);
  const Plan second_plan = plan_of(second_mask, 4, 2, 4, PlanKind::dual_chunk);
  Call first({1, 32, 32, 1, 1, 8}, first_mask, DType::bf16),
      second({1, 32, 32, 1, 1, 8}, second_mask, DType::bf16, testing::Layout::bshd, 2);
  comm::LocalWorld world(testing::world_options(first_plan));
  comm::run_ranks_or_throw(world, [&](Communicator& communicator) {
    ContextParallel a(first_mask, first_plan, communicator, testing::shape_of(first));
    LocalCall local_a(first, first_plan, communicator.rank());
    local_a.forward(a);
    ContextParallel b(second_mask, second_plan, communicator, testing::shape_of(second));
    LocalCall local_b(second, second_plan, communicator.rank());
    local_b.forward(b);
    local_a.backward(a);
    local_b.backward(b);
    local_a.store(first);
    local_b.store(second);
  });
  testing::expect_matches_oracle(first);
  testing::expect_matches_oracle(second);
}

TEST(Cases, C19_ranks_with_different_masks_or_plans_are_told_what_differs) {
  const auto first_mask = causal_documents({20, 12}, 32), second_mask = causal_documents({12, 20}, 32);
  const Plan plan = plan_of(first_mask, 2, 1, 4, PlanKind::contiguous);
  const Plan other_plan = plan_of(first_mask, 2, 1, 4, PlanKind::dual_chunk);
  for (const bool masks_differ : {true, false}) {
    comm::LocalWorld world(testing::world_options(plan));
    const auto errors = comm::run_ranks(world, [&](Communicator& communicator) {
      const bool odd = communicator.rank() == 1;
      ContextParallel(odd && masks_differ ? second_mask : first_mask, odd && !masks_differ ? other_plan : plan,
                      communicator, {1, 1, 1, 8, DType::f32});
    });
    for (const auto& error : errors) {
      EXPECT_NE(text_of(error).find(masks_differ ? "the mask's digest" : "the plan's digest"), std::string::npos)
          << text_of(error);
    }
  }
}

TEST(Cases, C20_a_peer_that_never_sends_ends_in_an_error_that_names_rank_chunk_and_counter) {
  const auto mask = causal_documents({32}, 32);
  const Plan plan = plan_of(mask, 3, 1, 4, PlanKind::contiguous);
  const Call call({1, 32, 32, 1, 1, 8}, mask, DType::bf16);
  auto options = testing::world_options(plan);
  options.deadline = std::chrono::milliseconds(300);
  comm::LocalWorld world(options);
  const auto start = std::chrono::steady_clock::now();
  const auto errors = comm::run_ranks(world, [&](Communicator& communicator) {
    ContextParallel context(mask, plan, communicator, testing::shape_of(call));
    LocalCall local(call, plan, communicator.rank());
    if (communicator.rank() == 0) {
      while (!world.cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    local.forward(context);
  });
  EXPECT_FALSE(errors[0]);
  for (const int r : {1, 2}) {
    const std::string text = text_of(errors[static_cast<std::size_t>(r)]);
    EXPECT_NE(text.find("waits in stage gather for chunk 0 of batch row 0 from rank 0"), std::string::npos) << text;
    EXPECT_NE(text.find("expected 1, seen 0"), std::string::npos) << text;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(ContextParallel, problems_that_do_not_fit_are_refused_before_anything_moves) {
  const auto mask = causal_documents({32}, 32);
  const Plan plan = plan_of(mask, 2, 1, 4, PlanKind::contiguous);
  const ContextParallelShape good{1, 2, 1, 8, DType::bf16};
  const auto refused = [&](const ColumnMask& m, const Plan& p, ContextParallelShape shape, const char* word) {
    comm::LocalOptions options;
    options.ranks = 2;
    comm::LocalWorld world(options);
    for (const auto& error : comm::run_ranks(world, [&](Communicator& c) { ContextParallel(m, p, c, shape); })) {
      EXPECT_NE(text_of(error).find(word), std::string::npos) << text_of(error);
    }
  };
  ContextParallelShape shape = good;
  shape.batch = 2;
  refused(mask, plan, shape, "batch = 2");
  shape = good, shape.head_dim = 0;
  refused(mask, plan, shape, "head_dim = 0");
  shape = good, shape.query_heads = 3, shape.kv_heads = 2;
  refused(mask, plan, shape, "query_heads = 3");
  refused(causal_documents({31}, 31), plan, good, "32 tokens");
  refused(mask, plan_of(mask, 3, 1, 4, PlanKind::contiguous), good, "3 ranks");
  refused(mask, plan_of(mask, 2, 2, 4, PlanKind::contiguous), good, "node");
  refused(ColumnMask({1, 1, 32, 16}), plan, good, "rows");
}

}  // namespace
}  // namespace flashmask
