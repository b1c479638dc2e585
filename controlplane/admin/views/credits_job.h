// SPDX-License-Identifier: Apache-2.0
//
// Job that answers 'sluicectl credits' over several iterations of the loop. The control plane's thread.
#pragma once

#include <memory>
#include <utility>

#include "controlplane/admin/answer.h"
#include "controlplane/admin/paced_work.h"
#include "controlplane/admin/views/credits.h"

namespace sluice::admin {

/// Adds a job to `work` that answers with the sums once they are complete.
inline void answer_credits(PacedWork& work, const Answer& answer, CreditSums sums) {
  const auto shared = std::make_shared<CreditSums>(std::move(sums));
  const bool added = work.add(answer, [shared, answer](Pace& pace) {
    if (!shared->add(pace)) return false;
    answer.result(shared->result());
    return true;
  });
  if (!added) answer.problem(kTooManyJobs);
}

}  // namespace sluice::admin
