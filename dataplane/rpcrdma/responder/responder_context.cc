// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/responder/responder_context.h"

#include "dataplane/rpcrdma/responder/responder.h"

namespace sluice::rpcrdma {

void CallMemory::resume_waiters() noexcept {
  while (!awaiting_calls.empty() && calls.available() > 0) {
    CallSlot& slot = *awaiting_calls.pop_front();
    slot.owner().resume(slot);
  }
  while (!awaiting_replies.empty() && replies.available() > 0) {
    CallSlot& slot = *awaiting_replies.pop_front();
    slot.owner().resume(slot);
    if (slot.state() == CallSlot::State::AwaitingReplyMemory) break;
  }
}

}  // namespace sluice::rpcrdma
