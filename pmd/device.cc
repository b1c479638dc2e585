// SPDX-License-Identifier: Apache-2.0
#include "pmd/device.h"

#include <time.h>

#include "pmd/buffer_pool.h"
#include "pmd/work_request.h"

namespace sluice::rdma {

void Device::wait(std::uint64_t limit_ns) noexcept {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const timespec interval{static_cast<time_t>(limit_ns / kSecond), static_cast<long>(limit_ns % kSecond)};
  ::nanosleep(&interval, nullptr);
}

BufferPool::BufferPool(Device& device, std::size_t buffers, std::size_t buffer_bytes)
    : BufferPool(device.allocate_memory(buffers * buffer_bytes), buffer_bytes) {}

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
