// SPDX-License-Identifier: Apache-2.0
//
// The driver suite over every model of a provider (verbs_models.h), with Receives per queue pair and with
// shared ones, and connection management by librdmacm over a model of it (rdma_cm_stub.cc). What a provider
// cannot do is skipped with its reason. The program prints the number of models, tests and skips as a figure.
#include <cstdio>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "controlplane/cm/rdma_cm_manager.h"
#include "pmd/verbs/verbs.h"
#include "tests/driver/connection_fixture.h"
#include "tests/driver/verbs_stub.h"

namespace sluice::rdma::conformance {
namespace {

constexpr std::uint32_t kShared = 32;
constexpr std::uint32_t kSharedBytes = 1u << 20;  // of the longest Send in the suite

class ModelPair final : public DriverPair {
 public:
  ModelPair(const Provider& provider, std::uint32_t shared_receives, bool windows)
      : provider_(provider), shared_receives_(shared_receives), windows_(windows) {
    VerbsStub::get().select(provider);
    if (missing() != nullptr) return;
    left_ = open();
    right_ = open();
  }
  ~ModelPair() override {
    left_manager_.reset();
    right_manager_.reset();
    left_.reset();
    right_.reset();
    VerbsStub::get().select(kFullProvider);
  }
  verbs::Verbs& left() override { return *left_; }
  verbs::Verbs& right() override { return *right_; }
  ConnectionManager* left_manager() override { return managed(left_manager_); }
  ConnectionManager* right_manager() override { return managed(right_manager_); }
  void carry() override {
    if (++carries_ % kCarriesPerCheck != 0) return;
    left_->handle_events();
    right_->handle_events();
  }
  WcStatus refusal_of_too_long() override {
    return provider_.too_long == IBV_WC_REM_OP_ERR ? WcStatus::RemoteOperationError
                                                   : WcStatus::RemoteInvalidRequest;
  }
  bool holds_window_bounds() override { return !windows_ || provider_.window_bounds; }
  bool shares_receives() override { return shared_receives_ > 0; }
  bool moves_data() override { return false; }
  const char* missing() override {
    return shared_receives_ > 0 && !provider_.shared_receives ? "the device has no shared receive queues"
                                                              : nullptr;
  }
  std::optional<Rkey> expose(QueuePairNumber of, std::span<std::byte> bytes, AccessFlags access) override {
    unsigned rights = 0;
    if ((access & kRemoteRead) != 0) rights |= IBV_ACCESS_REMOTE_READ;
    if ((access & kRemoteWrite) != 0) rights |= IBV_ACCESS_REMOTE_WRITE;
    return static_cast<Rkey>(VerbsStub::get().expose(static_cast<std::uint32_t>(of), bytes, rights));
  }

 private:
  static constexpr std::uint32_t kCarriesPerCheck = 100;

  std::unique_ptr<verbs::Verbs> open() const {
    return verbs::open({.device = {},
                        .max_queue_pairs = 16,
                        .shared_receives = shared_receives_,
                        .shared_receive_bytes = kSharedBytes,
                        .windows = windows_,
                        .call_regions = !windows_});
  }
  /// Both ends are addresses of the same machine.
  ConnectionManager* managed(std::unique_ptr<cm::RdmaCmManager>& by) {
    if (by == nullptr) by = std::make_unique<cm::RdmaCmManager>(right_->addresses()[0]);
    return by.get();
  }

  const Provider provider_;
  const std::uint32_t shared_receives_;
  const bool windows_;
  std::unique_ptr<verbs::Verbs> left_;
  std::unique_ptr<verbs::Verbs> right_;
  std::unique_ptr<cm::RdmaCmManager> left_manager_;
  std::unique_ptr<cm::RdmaCmManager> right_manager_;
  std::uint32_t carries_ = 0;
};

std::vector<DriverParam> over_every_model(const char* suffix, std::uint32_t shared_receives,
                                          bool windows = true) {
  static std::deque<std::string> names;
  std::vector<DriverParam> params;
  for (const Provider& provider : kProviders) {
    names.push_back(std::string(provider.name) + suffix);
    params.emplace_back(names.back().c_str(), [=, &provider] {
      return std::make_unique<ModelPair>(provider, shared_receives, windows);
    });
  }
  return params;
}

const std::vector<DriverParam> kOwn = over_every_model("", 0);
const std::vector<DriverParam> kRegions = over_every_model("_regions", 0, false);
const std::vector<DriverParam> kSharing = over_every_model("_sharing", kShared);

INSTANTIATE_TEST_SUITE_P(Models, DriverTest, testing::ValuesIn(kOwn), driver_name);
INSTANTIATE_TEST_SUITE_P(ModelsSharing, DriverTest, testing::ValuesIn(kSharing), driver_name);
INSTANTIATE_TEST_SUITE_P(Models, Refusal, testing::ValuesIn(kOwn), driver_name);
INSTANTIATE_TEST_SUITE_P(ModelsRegions, Refusal, testing::ValuesIn(kRegions), driver_name);
INSTANTIATE_TEST_SUITE_P(Models, ConnectionTest, testing::ValuesIn(kOwn), driver_name);

/// Prints the figure provider_models after all tests. Two versions of one provider are one model.
class Figure final : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& test) override {
    ++tests_;
    const testing::TestResult& result = *test.result();
    failures_ += result.Failed();
    if (!result.Skipped()) return;
    for (int i = 0; i < result.total_part_count(); ++i)
      if (result.GetTestPartResult(i).skipped()) ++skips_[last_line(result.GetTestPartResult(i).message())];
  }
  void OnTestProgramEnd(const testing::UnitTest&) override {
    std::set<std::string_view> models;
    for (const Provider& provider : kProviders)
      models.insert(provider.name.substr(0, provider.name.rfind('_')));
    std::string reasons;
    for (const auto& [reason, count] : skips_)
      reasons += (reasons.empty() ? "\"" : ", \"") + reason + "\": " + std::to_string(count);
    std::printf(
        "{\"figure\": \"provider_models\", \"value\": %zu, \"unit\": \"models\", \"goal\": 11, \"rows\": "
        "%zu, "
        "\"tests_of_each\": %d, \"failures\": %d, \"skips\": {%s}}\n",
        models.size(), std::size(kProviders), tests_ / static_cast<int>(std::size(kProviders)), failures_,
        reasons.c_str());
  }
  static std::string last_line(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }

  int tests_ = 0;
  int failures_ = 0;
  std::map<std::string, int> skips_;
};

}  // namespace
}  // namespace sluice::rdma::conformance

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new sluice::rdma::conformance::Figure);
  return RUN_ALL_TESTS();
}
