// SPDX-License-Identifier: Apache-2.0
//
// The client that behaves. It makes one call at a time and checks the content of each reply. A failed check
// fails the test that runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tests/conformance/raw_call.h"
#include "tests/isolation/attacks.h"

namespace sluice::isolation {

class Victim {
 public:
  enum class Operation { Null, GetAttr, List, Read, Write, Authenticate };
  static constexpr Operation kOperations[] = {Operation::Null, Operation::GetAttr, Operation::List,
                                              Operation::Read, Operation::Write,   Operation::Authenticate};

  /// Connects and speaks `version`.
  Victim(Site& site, std::uint32_t version);

  /// Makes one call and returns the iterations that it took. `others` run in each of them.
  std::uint64_t run(Operation operation, Attackers* others = nullptr);
  bool lost() const { return peer_->lost(); }
  void turn();
  /// Time that iterations of the server and of this client have taken so far.
  std::uint64_t served_ns() const { return served_ns_; }

 private:
  using Segments = std::vector<rpcrdma::Segment>;

  Bytes ask(const std::vector<conformance::RawRead>& reads, const std::vector<Segments>& writes,
            const std::optional<Segments>& reply, const Bytes& payload);
  bool succeeds(const Bytes& answer) const;
  void get_attr();
  void list();
  void read();
  void write();
  void authenticate();

  Site& site_;
  const std::uint32_t version_;
  std::unique_ptr<Peer> peer_;
  Attackers* others_ = nullptr;
  std::uint32_t xid_ = 0x9000'0000;
  std::uint64_t served_ns_ = 0;
};

}  // namespace sluice::isolation
