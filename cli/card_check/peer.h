// SPDX-License-Identifier: Apache-2.0
//
// The tests between two machines, which other programs of Sluice run.
#pragma once

#include <iosfwd>
#include <string>

namespace sluice::card_check {

/// Prints the commands, with the device if one was chosen.
void print_peer_commands(std::ostream& out, const std::string& device);

}  // namespace sluice::card_check
