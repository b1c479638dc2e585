// SPDX-License-Identifier: Apache-2.0
//
// Shared by tests of an upstream's addresses: an address book, names that resolve to addresses of the test,
// and servers.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/tasks/arena.h"
#include "controlplane/upstreams/address_table.h"
#include "tests/unit/controlplane/onc_rpc/rpc_lab.h"

namespace sluice::upstreams::lab {

using namespace onc_rpc::lab;

inline const PeerAddress kOther = PeerAddress::from_ipv4(127, 0, 0, 2);

/// A name server with the answers of the test. Lookups hold a reference to it.
class Names : public std::enable_shared_from_this<Names> {
 public:
  void set(const std::string& name, std::vector<PeerAddress> addresses) {
    const std::lock_guard lock(mutex_);
    addresses_[name] = std::move(addresses);
  }
  LookUp look_up() {
    return [names = shared_from_this()](const std::string& host) -> LookupResult {
      const std::lock_guard lock(names->mutex_);
      ++names->asked_;
      const auto at = names->addresses_.find(host);
      if (at == names->addresses_.end() || at->second.empty()) return {{}, "nobody knows it"};
      return {at->second, {}};
    };
  }
  int asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<PeerAddress>> addresses_;
  int asked_ = 0;
};

class Book : public testing::Test {
 protected:
  void open(std::initializer_list<const char*> hosts, segment::Transport transport = segment::Transport::Tcp,
            segment::Driver driver = segment::Driver::SoftRoce) {
    segment::UpstreamConfig upstream;
    upstream.transport = transport;
    std::strcpy(upstream.name, "nas");
    upstream.port = server_.port();
    upstream.route_count = 1;
    upstream.routes[0] = {100003, 4};
    for (const char* host : hosts) std::strcpy(upstream.hosts[upstream.host_count++].data(), host);
    driver_ = driver;
    book_.emplace(upstream, driver_, arena_, names_->look_up());
    upstream_ = upstream;
  }
  /// Reloads the configuration: a new book replaces the present one and adopts its state.
  void reload(const segment::UpstreamConfig& upstream) {
    AddressTable next(upstream, driver_, arena_, names_->look_up());
    next.adopt(*book_);
    book_.emplace(upstream, driver_, arena_, names_->look_up());
    book_->adopt(next);
  }
  void until(const std::function<bool()>& done) {
    turn_until(*book_, now_ns_, [&] {
      arena_.deliver();
      server_.pump();
      other_.pump();
      return done();
    });
  }
  void until_asked(int times) {
    until([&] { return names_->asked() == times; });
  }
  std::vector<PeerAddress> addresses() const {
    std::vector<PeerAddress> list;
    for (std::uint32_t i = 0; i < book_->list().count; ++i)
      list.push_back(book_->list().addresses[i].address);
    return list;
  }
  const segment::UpstreamAddress& entry(std::size_t i) const { return book_->list().addresses[i]; }
  /// Waits until both servers have been called with NULL once, and lets the first one answer.
  void check() {
    now_ns_ += segment::kAddressCheckNs;
    server_.calls.clear();
    other_.calls.clear();
    until([&] { return server_.calls.size() == 1 && other_.calls.size() == 1; });
    server_.answer(server_.calls[0], {});
    const std::uint32_t before = entry(0).answers;
    until([&] { return entry(0).answers == before + 1; });
  }

  std::uint64_t now_ns_ = kStartNs;
  std::shared_ptr<Names> names_ = std::make_shared<Names>();
  FakeServer server_;
  FakeServer other_{kOther, server_.port()};
  tasks::Arena arena_{{.threads = 2, .queued = 2}};
  segment::Driver driver_ = segment::Driver::SoftRoce;
  std::optional<AddressTable> book_;
  segment::UpstreamConfig upstream_{};  ///< as opened
};

}  // namespace sluice::upstreams::lab
