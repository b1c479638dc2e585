// SPDX-License-Identifier: Apache-2.0
//
// One provocation of a client: it waits for a suitable call, answers it in a special manner, and checks the
// client's reaction. All other calls are served during that time. Runs on the thread of the responder.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/conformance/responder.h"
#include "cli/conformance/trial.h"

namespace sluice::conformance {

class Stage {
 public:
  using Suits = FunctionRef<bool(const WaitingCall&)>;
  /// Creates a stage. It stops waiting when `stopped` returns true.
  Stage(Responder& own, std::uint64_t patience_ns, FunctionRef<bool()> stopped)
      : responder(own), patience_ns_(patience_ns), stopped_(stopped) {}
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  Responder& responder;

  /// Returns the next suitable call. Skips the provocation if there is none.
  WaitingCall await(Suits suits, const std::string& what);
  /// Returns the next NFS call other than NULL.
  WaitingCall await_call() { return await(is_nfs, "a call of NFS"); }
  /// Returns the next call that reads and changes nothing, so that its failure loses no data.
  WaitingCall await_harmless() { return await(is_harmless, "a GETATTR, LOOKUP or ACCESS of NFS version 3"); }
  /// Serves the given number of calls. Skips the provocation if there are fewer.
  void serve(std::uint32_t calls);

  /// Checks that the client has completed the call, which means that it makes other calls on the connection
  /// and does not retransmit this one.
  void expect_done(const WaitingCall& call);
  /// Performs the checks of expect_done(). If the client retransmits the call on its connection, returns the
  /// retransmitted call without serving it.
  std::optional<WaitingCall> expect_done_or_again(const WaitingCall& call);
  /// Checks that the client retransmits the call on another connection, and serves it.
  void expect_again(const WaitingCall& call);
  /// Serves the calls that await() has returned and that are not answered.
  void serve_what_is_left();
  void expect(bool holds, const std::string& wanted) {
    if (!holds) throw Failure("Expected: " + wanted);
  }
  [[noreturn]] void skip(const std::string& why) { throw Skipped(why); }
  std::uint64_t patience_ns() const { return patience_ns_; }

  static bool is_nfs(const WaitingCall& call);
  static bool is_harmless(const WaitingCall& call);

 private:
  std::optional<WaitingCall> next(Suits suits);

  std::uint64_t patience_ns_;
  FunctionRef<bool()> stopped_;
  std::vector<WaitingCall> taken_;
};

/// Behaviour that a responder may show, or that older responders showed.
struct Provocation {
  Test test;
  void (*run)(Stage& stage);
};
/// Returns the provocations for clients of this version, in the order of execution. Provocations that cost
/// the client a call come last.
std::vector<const Provocation*> provocations_of(std::uint32_t version);

// Tables of provocations.
std::span<const Provocation> provocations();
std::span<const Provocation> broken_replies();
std::span<const Provocation> provocations_of_version_2();
std::span<const Provocation> refusals_of_version_2();
std::span<const Provocation> errors_of_version_2();
std::span<const Provocation> broken_replies_of_version_2();
std::span<const Provocation> first_answers_of_version_2();

/// Runs a provocation and restores the responder's settings afterwards.
Result provoke(const Provocation& provocation, Responder& responder, std::uint64_t patience_ns, bool strict,
               FunctionRef<bool()> stopped);

}  // namespace sluice::conformance
