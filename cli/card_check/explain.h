// SPDX-License-Identifier: Apache-2.0
//
// Meaning of a report for an operator: which roles of Sluice work on the card, with which limits, and which
// workarounds of the driver are active.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "cli/card_check/report.h"

namespace sluice::card_check {

struct Role {
  enum class Verdict : unsigned char {
    Works,
    Expected,  ///< the report has no test of the data path
    Fails,
  };
  const char* name = "";
  Verdict verdict = Verdict::Fails;
  std::string remark;  ///< reason or limit; may be empty
};

/// Returns the roles in the order of the documentation.
std::vector<Role> roles_of(const Report& report);
/// Returns a sentence for each deviation of the card that the driver avoids.
std::vector<std::string> workarounds_of(const Report& report);
/// Prints everything as text.
void explain(std::ostream& out, const Report& report);

}  // namespace sluice::card_check
