// SPDX-License-Identifier: Apache-2.0
#include "pmd/rdma.h"

#include <time.h>

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

void Device::wait(std::uint64_t limit_ns) noexcept {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const timespec nap{static_cast<time_t>(limit_ns / kSecond), static_cast<long>(limit_ns % kSecond)};
  ::nanosleep(&nap, nullptr);
}

}  // namespace sluice::rdma
