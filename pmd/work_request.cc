// SPDX-License-Identifier: Apache-2.0
#include "pmd/work_request.h"

namespace sluice::rdma {

const char* to_string(WcStatus status) noexcept {
  switch (status) {
    case WcStatus::Success:
      return "success";
    case WcStatus::LocalLengthError:
      return "local length error";
    case WcStatus::LocalProtectionError:
      return "local protection error";
    case WcStatus::WrFlushError:
      return "flushed";
    case WcStatus::BindError:
      return "memory window bind error";
    case WcStatus::RemoteInvalidRequest:
      return "remote invalid request";
    case WcStatus::RemoteAccessError:
      return "remote access error";
    case WcStatus::RemoteOperationError:
      return "remote operation error";
    case WcStatus::RetryExceeded:
      return "retries exceeded";
    case WcStatus::RnrRetryExceeded:
      return "receiver-not-ready retries exceeded";
  }
  return "unknown";
}

}  // namespace sluice::rdma
