// The contamination check passes a right step and names what is wrong with each kind of wrong one.
#include "overlap/contamination.hpp"

#include <gtest/gtest.h>

#include <map>

#include "ranks/ranks_support.hpp"
#include "support/wrapped_communicator.hpp"

namespace flashmask {
namespace {

using overlap::Contamination;
using overlap::ContaminationCheck;
using testing::Call;
using testing::causal_documents;
using testing::LocalCall;
using testing::plan_of;
using testing::WrappedCommunicator;

const std::vector<std::int64_t> kDocuments{29, 70, 13};
constexpr std::int64_t kRows = 112, kHeadDim = 36;

using Wrap = std::function<std::unique_ptr<Communicator>(Communicator&)>;

/// Every call of the check on every rank, with the ranks' mask and transport as given.
std::vector<Contamination> findings(const ColumnMask& mask_of_ranks, PlanKind kind, const Wrap& wrap = {}) {
  const auto mask = causal_documents(kDocuments, kRows, 2);
  const Plan plan = plan_of(mask, 4, 2, 8, kind);
  ContaminationCheck check(mask, plan, 2, 1, kHeadDim, {kDocuments});
  Call call({2, kRows, kRows, 2, 1, kHeadDim}, mask, DType::f32);
  call.q.fill(0), call.k.fill(0);
  const auto calls = static_cast<std::size_t>(check.calls());
  std::vector<std::vector<float>> outs(calls, std::vector<float>(2 * kRows * 2 * kHeadDim)),
      lses(calls, std::vector<float>(2 * 2 * kRows));
  comm::LocalWorld world(testing::world_options(plan));
  comm::run_ranks_or_throw(world, [&](Communicator& inner) {
    const auto wrapped = wrap ? wrap(inner) : std::make_unique<WrappedCommunicator>(inner);
    ContextParallel context(mask_of_ranks, plan, *wrapped, testing::shape_of(call));
    LocalCall local(call, plan, inner.rank());
    const auto rows = global_rows(plan, inner.rank());
    for (std::size_t c = 0; c < calls; ++c) {
      const auto v = check.values(static_cast<std::int64_t>(c));
      local.v.for_each([&](auto b, auto i, auto h, auto d) {
        local.v.set(b, i, h, d, v[((b * kRows + rows[i]) + h) * kHeadDim + d]);
      });
      local.forward(context);
      local.out.for_each([&](auto b, auto i, auto h, auto d) {
        outs[c][((b * kRows + rows[i]) * 2 + h) * kHeadDim + d] = local.out.get(b, i, h, d);
      });
      for (std::int64_t bh = 0; bh < 4; ++bh) {
        for (std::size_t i = 0; i < rows.size(); ++i) lses[c][bh * kRows + rows[i]] = local.lse[bh * rows.size() + i];
      }
    }
  });
  for (std::size_t c = 0; c < calls; ++c) check.inspect(static_cast<std::int64_t>(c), outs[c], lses[c]);
  return check.findings();
}

std::string text_of(const std::vector<Contamination>& all) {
  std::string text;
  for (const auto& f : all) text += std::string(to_string(f.kind)) + ": " + f.text + "\n";
  return text;
}

TEST(Contamination, a_right_step_is_clean_under_every_plan) {
  const auto mask = causal_documents(kDocuments, kRows, 2);
  for (const PlanKind kind : {PlanKind::hcc_ipo, PlanKind::contiguous, PlanKind::dual_chunk, PlanKind::lpt}) {
    const auto found = findings(mask, kind);
    EXPECT_TRUE(found.empty()) << text_of(found);
  }
}

TEST(Contamination, a_lost_document_boundary_is_named) {
  const auto found = findings(causal_documents({29 + 70, 13}, kRows, 2), PlanKind::dual_chunk);
  ASSERT_FALSE(found.empty());
  for (const auto& f : found) {
    EXPECT_EQ(f.kind, Contamination::Kind::hidden_seen) << text_of(found);
    EXPECT_EQ(f.document, 0);
    EXPECT_GE(f.row, 29);
  }
}

constexpr std::int32_t kVictim = 5;  // a chunk inside the second document
constexpr std::size_t kChunkBytes = 8 * 2 * kHeadDim * sizeof(float);

/// Lets `change` replace what is sent for the victim chunk of batch row 0 by its owner.
class Faulty : public WrappedCommunicator {
 public:
  using Change = std::function<const std::byte*(const Put&)>;
  Faulty(Communicator& inner, Change change) : WrappedCommunicator(inner), change_(std::move(change)) {}
  void put(Stream& stream, const Put& put) override {
    Put changed = put;
    if (put.tag.stage == Stage::gather && put.tag.batch == 0) changed.source = change_(put);
    WrappedCommunicator::put(stream, changed);
  }

 private:
  Change change_;
};

TEST(Contamination, a_dropped_chunk_is_named) {
  const std::vector<std::byte> nothing(kChunkBytes);
  const auto found = findings(causal_documents(kDocuments, kRows, 2), PlanKind::dual_chunk, [&](Communicator& inner) {
    return std::make_unique<Faulty>(inner,
                                    [&](const Put& p) { return p.tag.chunk == kVictim ? nothing.data() : p.source; });
  });
  ASSERT_FALSE(found.empty());
  for (const auto& f : found) {
    EXPECT_EQ(f.kind, Contamination::Kind::missing) << text_of(found);
    EXPECT_EQ(f.chunk, kVictim);
    EXPECT_EQ(f.document, 1);
  }
}

/// Two chunks of one owner inside the second document, and a rank that needs both and owns a chunk of rows between
/// them.
struct Swap {
  std::int32_t first = -1, second = -1, receiver = -1;
};
Swap find_swap(const Plan& plan) {
  for (std::int32_t a = 4; a < 12; ++a) {
    for (std::int32_t b = a + 2; b < 12; ++b) {
      if (plan.rank_of_chunk(a) != plan.rank_of_chunk(b)) continue;
      for (std::int32_t m = a + 1; m < b; ++m) {
        for (std::int32_t l = b + 1; l < 12; ++l) {
          const auto r = plan.rank_of_chunk(m);
          if (r == plan.rank_of_chunk(l) && r != plan.rank_of_chunk(a)) return {a, b, static_cast<std::int32_t>(r)};
        }
      }
    }
  }
  return {};
}

TEST(Contamination, swapped_chunks_of_one_document_are_named) {
  const auto mask = causal_documents(kDocuments, kRows, 2);
  const Plan plan = plan_of(mask, 4, 2, 8, PlanKind::lpt);
  const Swap swap = find_swap(plan);
  ASSERT_GE(swap.receiver, 0) << "no two chunks of this plan can be swapped visibly";
  std::mutex mutex;
  std::map<std::int32_t, const std::byte*> slots;  // of the owner; they stay where they are from call to call
  const auto found = findings(mask, PlanKind::lpt, [&](Communicator& inner) {
    return std::make_unique<Faulty>(inner, [&, rank = inner.rank()](const Put& p) {
      if (p.tag.chunk != swap.first && p.tag.chunk != swap.second) return p.source;
      if (rank != plan.rank_of_chunk(p.tag.chunk)) return p.source;  // relays pass on what they get
      const std::lock_guard lock(mutex);
      if (p.value == 1) {  // the first call shows where they lie
        slots.try_emplace(p.tag.chunk, p.source);
        return p.source;
      }
      return slots.at(p.tag.chunk == swap.first ? swap.second : swap.first);
    });
  });
  ASSERT_FALSE(found.empty());
  for (const auto& f : found) {
    EXPECT_EQ(f.kind, Contamination::Kind::swapped) << text_of(found);
    EXPECT_EQ(f.document, 1);
    EXPECT_EQ(f.chunk, swap.first);
  }
}

TEST(Contamination, chunks_of_the_previous_call_are_named) {
  std::mutex mutex;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::byte>> last;  // sender and receiver
  std::vector<std::vector<std::byte>> kept;
  const auto owner =
      plan_of(causal_documents(kDocuments, kRows, 2), 4, 2, 8, PlanKind::dual_chunk).rank_of_chunk(kVictim);
  const auto found = findings(causal_documents(kDocuments, kRows, 2), PlanKind::dual_chunk, [&](Communicator& inner) {
    const std::int32_t rank = inner.rank();
    return std::make_unique<Faulty>(inner, [&, rank](const Put& p) {
      if (p.tag.chunk != kVictim || rank != owner) return p.source;
      const std::lock_guard lock(mutex);
      std::vector<std::byte>& previous = last[{rank, p.peer}];
      std::vector<std::byte> now(p.source, p.source + p.bytes);
      if (previous.empty()) {
        previous = now;
        return p.source;
      }
      kept.push_back(std::exchange(previous, now));
      return static_cast<const std::byte*>(kept.back().data());
    });
  });
  ASSERT_FALSE(found.empty());
  for (const auto& f : found) {
    EXPECT_EQ(f.kind, Contamination::Kind::previous_call) << text_of(found);
    EXPECT_EQ(f.chunk, kVictim);
  }
}

}  // namespace
}  // namespace flashmask
