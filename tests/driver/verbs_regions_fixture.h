// SPDX-License-Identifier: Apache-2.0
//
// Two verbs devices over a model of a provider without memory windows, whose regions are registered for one
// call each.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "pmd/verbs/verbs.h"
#include "tests/driver/verbs_stub.h"

namespace sluice::rdma::conformance {

/// Returns the models that complete no bind of a memory window.
inline std::vector<Provider> window_less_providers() {
  std::vector<Provider> found;
  for (const Provider& provider : kProviders)
    if (provider.windows != Provider::Windows::Whole) found.push_back(provider);
  return found;
}

class WindowLess : public testing::TestWithParam<Provider> {
 protected:
  ~WindowLess() override {
    stub_.hold_registrations(false);
    stub_.refuse_memory(0);
    server_.reset();
    client_.reset();
    stub_.select(kFullProvider);
  }
  static VerbsStub& model() {
    VerbsStub::get().select(GetParam());
    return VerbsStub::get();
  }
  static std::unique_ptr<verbs::Verbs> open(bool call_regions) {
    return verbs::open({.device = {}, .max_queue_pairs = 8, .call_regions = call_regions});
  }
  /// Connects two queue pairs. The limit on turns is generous: it only bounds a failing test.
  void connect(QueuePair& of_client, QueuePair& of_server) {
    constexpr std::uint32_t kPsn = 100;
    RcAttributes attributes;
    attributes.local = attributes.remote = client_->addresses()[0];
    attributes.send_psn = attributes.receive_psn = kPsn;
    attributes.path_mtu = client_->max_path_mtu();
    attributes.remote_qp = of_server.number();
    ASSERT_TRUE(of_client.connect(attributes));
    attributes.remote_qp = of_client.number();
    ASSERT_TRUE(of_server.connect(attributes));
  }

  VerbsStub& stub_ = model();
  std::unique_ptr<verbs::Verbs> client_ = open(true);
  std::unique_ptr<verbs::Verbs> server_ = open(false);
};

inline std::string name_of_provider(const testing::TestParamInfo<Provider>& row) {
  return std::string(row.param.name);
}

}  // namespace sluice::rdma::conformance
