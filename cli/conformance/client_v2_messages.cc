// SPDX-License-Identifier: Apache-2.0
//
// Rules for a client of version 2: its first message, the prefix, credits, parts, properties.
#include "cli/conformance/judge.h"

namespace sluice::conformance {
namespace {

const Rule kRules[] = {
    {{"V2_035_no_message_is_sent_without_a_credit", Level::Must, Needs::Nothing,
      "Version 2, 4.3.1.1: no more messages than were granted, but for one grant.", nullptr},
     "a message behind a first grant",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.at.v2.has_granted()) f.holds(!s.at.v2.beyond_grant(), "a message within the credits");
     }},
};

}  // namespace

std::span<const Rule> rules_of_version_2_messages() {
  return kRules;
}

}  // namespace sluice::conformance
