// SPDX-License-Identifier: Apache-2.0
#include "dataplane/tcp/stream_receiver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace sluice::tcp {
namespace {

constexpr std::uint32_t kMostGroups = 1u << 16;
/// One buffer: index and mask of its entry.
constexpr int kOnlyEntry = 0;

std::size_t page_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Resident once it is used. Null: the kernel has no multishot receive, or too many streams.
io_uring_buf_ring* new_buffers(const Uring& uring, std::uint32_t number) {
  if (!uring.features().has(UringFeature::multishot_receive) || number >= kMostGroups) return nullptr;
  void* const page =
      ::mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? nullptr : static_cast<io_uring_buf_ring*>(page);
}

}  // namespace

StreamReceiver::StreamReceiver(Uring& uring, void* target)
    : uring_(uring), target_(target), number_(uring.new_group()), buffers_(new_buffers(uring, number_)) {}

StreamReceiver::~StreamReceiver() {
  if (buffers_ != nullptr) ::munmap(buffers_, page_bytes());
}

/// With a connection's first receive, since most of those that could be are not made.
bool StreamReceiver::prepare() noexcept {
  if (!ready_ && buffers_ != nullptr) ready_ = uring_.provide(buffers_, group());
  return ready_;
}

/// A buffer that was never taken is replaced: the kernel has no operation then that could take it.
void StreamReceiver::offer(std::span<std::byte> room) noexcept {
  io_uring_buf_ring_add(buffers_, room.data(), static_cast<unsigned>(room.size()), 0, kOnlyEntry, 0);
  if (!std::exchange(offered_, true)) io_uring_buf_ring_advance(buffers_, 1);
}

void StreamReceiver::receive(int socket, std::span<std::byte> room) noexcept {
  asked_ = true;
  if (!prepare()) {
    once_ = true;
    return uring_.receive(target_, socket, room.data(), room.size());
  }
  socket_ = socket;
  offer(room);
  if (!std::exchange(again_, true)) uring_.receive_again(target_, socket, group());
}

void StreamReceiver::receive_all(int socket, std::span<std::byte> room) noexcept {
  asked_ = once_ = true;
  uring_.receive_all(target_, socket, room.data(), room.size());
}

std::optional<int> StreamReceiver::answer(int result) noexcept {
  if (!std::exchange(asked_, false)) return std::nullopt;
  return result;
}

std::optional<int> StreamReceiver::on_received(const Uring::Completion& end) noexcept {
  once_ = false;
  return answer(end.result);
}

std::optional<int> StreamReceiver::on_received_again(const Uring::Completion& end) noexcept {
  again_ = end.more;
  if (end.took_buffer) offered_ = false;
  if (end.result != -ENOBUFS) return answer(end.result);
  // It came to bytes when no buffer was provided; since then there may be one.
  if (!again_ && asked_ && offered_) {
    again_ = true;
    uring_.receive_again(target_, socket_, group());
  }
  return std::nullopt;
}

}  // namespace sluice::tcp
