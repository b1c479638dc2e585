// SPDX-License-Identifier: Apache-2.0
//
// One provocation of a client: it waits for a call that suits it, answers in a way of its own, and looks at what the client does.
// All other calls are served meanwhile. The thread of the responder.
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
  /// `stopped`: nothing more is waited for.
  Stage(Responder& own, std::uint64_t patience_ns, FunctionRef<bool()> stopped)
      : responder(own), patience_ns_(patience_ns), stopped_(stopped) {}
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  Responder& responder;

  /// The next call that suits. Skips when none comes.
  WaitingCall await(Suits suits, const std::string& what);
  /// Any call of NFS but NULL.
  WaitingCall await_call() { return await(is_nfs, "a call of NFS"); }
  /// Some that read and change nothing: if they fail, no data is lost.
  WaitingCall await_harmless() { return await(is_harmless, "a GETATTR, LOOKUP or ACCESS of NFS version 3"); }
  /// Serves calls until so many have come. Skips when they do not.
  void serve(std::uint32_t calls);

  /// The call is done for the client: it makes other calls on the same connection, and does not repeat this one.
  void expect_done(const WaitingCall& call);
  /// The same, unless the call comes again on its connection, which is returned and not served.
  std::optional<WaitingCall> expect_done_or_again(const WaitingCall& call);
  /// The call comes again on another connection, and is served.
  void expect_again(const WaitingCall& call);
  /// Calls that were awaited and are not answered.
  void serve_what_is_left();
  void expect(bool holds, const std::string& wanted) {
    if (!holds) throw Failure("Wanted: " + wanted);
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

/// What a responder may do, or what older ones did.
struct Provocation {
  Test test;
  void (*run)(Stage& stage);
};
/// Of clients of this version, in the order in which they are to be tried: those that cost the client a call come last.
std::vector<const Provocation*> provocations_of(std::uint32_t version);

// The tables.
std::span<const Provocation> provocations();
std::span<const Provocation> broken_replies();
std::span<const Provocation> provocations_of_version_2();
std::span<const Provocation> refusals_of_version_2();
std::span<const Provocation> errors_of_version_2();
std::span<const Provocation> broken_replies_of_version_2();
std::span<const Provocation> first_answers_of_version_2();

/// The responder is set as it was afterwards.
Result provoke(const Provocation& provocation, Responder& responder, std::uint64_t patience_ns, bool strict,
               FunctionRef<bool()> stopped);

}  // namespace sluice::conformance
