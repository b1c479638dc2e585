// SPDX-License-Identifier: Apache-2.0
//
// Rules for a call and its chunks. Both versions share them under different rows. Pure functions; any thread.
#pragma once

#include "cli/conformance/rule.h"

namespace sluice::conformance::checks {

// Header and message.
void has_one_xid(const Sight& s, Finding& f);
void is_an_rpc_call(const Sight& s, Finding& f);
void long_call_is_in_its_chunk(const Sight& s, Finding& f);
void inline_call_has_no_such_chunk(const Sight& s, Finding& f);

// Read chunks.
void argument_is_eligible(const Sight& s, Finding& f);
void chunk_is_one_argument(const Sight& s, Finding& f);
void position_is_that_of_the_data(const Sight& s, Finding& f);
void count_is_that_of_the_chunk(const Sight& s, Finding& f);
void payload_has_no_padding(const Sight& s, Finding& f);
void positions_are_multiples_of_four(const Sight& s, Finding& f);
void positions_do_not_descend(const Sight& s, Finding& f);
void chunk_has_no_padding(const Sight& s, Finding& f);

// Write chunks.
void has_room_for_the_result(const Sight& s, Finding& f);
void has_no_room_for_padding(const Sight& s, Finding& f);
void result_is_eligible(const Sight& s, Finding& f);

// Memory.
void handles_change(const Sight& s, Finding& f);
void repeated_call_has_fresh_handles(const Sight& s, Finding& f);
void is_not_reduced(const Sight& s, Finding& f);
void protected_call_is_not_reduced(const Sight& s, Finding& f);
void reply_is_received(const Sight& s, Finding& f);
void read_chunk_can_be_read(const Sight& s, Finding& f);
void write_chunk_can_be_written(const Sight& s, Finding& f);

}  // namespace sluice::conformance::checks
