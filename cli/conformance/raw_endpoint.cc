// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/raw_endpoint.h"

#include <cstdio>
#include <cstring>
#include <string>

#include "cli/conformance/messages.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::conformance {
namespace {

constexpr std::size_t kArenaBytes = 8u << 20;
constexpr std::uint32_t kSendDepth = 4096;

}  // namespace

RawEndpoint::RawEndpoint(rdma::Device& device, std::uint32_t receive_bytes, std::uint32_t receives)
    : device_(device),
      receive_bytes_(receive_bytes),
      receives_(receives),
      receive_region_(device.allocate_memory(std::size_t{receive_bytes} * receives)),
      arena_(device.allocate_memory(kArenaBytes)) {}

Owned<rdma::QueuePair> RawEndpoint::make_queue_pair(bool with_receives) {
  rdma::QueuePairLimits limits;
  limits.recv_depth = receives_;
  limits.send_depth = kSendDepth;
  auto qp = device_.create_queue_pair(limits);
  adopt(*qp);
  if (with_receives) post_receives();
  return qp;
}

void RawEndpoint::adopt(rdma::QueuePair& qp) {
  qp_ = &qp;
}

void RawEndpoint::post_receives() {
  for (std::uint32_t i = 0; i < receives_; ++i) {
    const rdma::RecvWr wr{i,
                          {receive_region_.bytes.data() + std::size_t{i} * receive_bytes_, receive_bytes_,
                           receive_region_.lkey}};
    qp_->post_recv({&wr, 1});
  }
}

rdma::MemoryRegion RawEndpoint::allocate(std::size_t bytes) {
  const std::size_t rounded = (bytes + 63) / 64 * 64 + 64;
  if (rounded > arena_.bytes.size()) throw EndpointError("More memory is wanted than there is.");
  if (arena_used_ + rounded > arena_.bytes.size()) arena_used_ = 0;  // tests use only recent memory
  const rdma::MemoryRegion part{arena_.bytes.subspan(arena_used_, bytes), arena_.lkey};
  arena_used_ += rounded;
  return part;
}

void RawEndpoint::post(const rdma::SendWr& wr) {
  if (qp_->post_send({&wr, 1}) != 1) throw EndpointError("The send queue is full.");
}

void RawEndpoint::send(std::span<const std::byte> bytes, rdma::Rkey invalidate) {
  const rdma::MemoryRegion copy = allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.bytes.data(), bytes.data(), bytes.size());
  const rdma::Sge sge{copy.bytes.data(), static_cast<std::uint32_t>(bytes.size()), copy.lkey};
  const bool invalidates = invalidate != rdma::Rkey{};
  post({.wr_id = next_send_++,
        .sges = {&sge, 1},
        .rkey = invalidate,
        .opcode = invalidates ? rdma::SendOpcode::SendWithInvalidate : rdma::SendOpcode::Send});
  on_message(true, bytes);
}

Exposed RawEndpoint::expose(std::size_t bytes, rdma::AccessFlags access) {
  const rdma::MemoryRegion part = allocate(bytes);
  const auto rkey = qp_->bind_window(device_.allocate_window(), part.bytes, part.lkey, access);
  if (!rkey) throw EndpointError("No memory window can be bound.");
  return {part.bytes,
          {*rkey, static_cast<std::uint32_t>(bytes), reinterpret_cast<std::uintptr_t>(part.bytes.data())}};
}

void RawEndpoint::write_remote(const rpcrdma::Segment& segment, std::span<const std::byte> bytes) {
  const rdma::MemoryRegion copy = allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.bytes.data(), bytes.data(), bytes.size());
  const rdma::Sge sge{copy.bytes.data(), static_cast<std::uint32_t>(bytes.size()), copy.lkey};
  post({.wr_id = next_send_++,
        .sges = {&sge, 1},
        .remote_address = segment.offset,
        .rkey = segment.handle,
        .opcode = rdma::SendOpcode::RdmaWrite});
}

std::span<const std::byte> RawEndpoint::read_remote(const rpcrdma::Segment& segment, std::size_t bytes) {
  const rdma::MemoryRegion sink = allocate(bytes);
  const rdma::Sge sge{sink.bytes.data(), static_cast<std::uint32_t>(bytes), sink.lkey};
  post({.wr_id = next_send_++,
        .sges = {&sge, 1},
        .remote_address = segment.offset,
        .rkey = segment.handle,
        .opcode = rdma::SendOpcode::RdmaRead});
  return sink.bytes.first(bytes);
}

void RawEndpoint::forget() {
  inbox.clear();
  send_completions.clear();
  failed = false;
  first_error = rdma::WcStatus::Success;
}

void RawEndpoint::poll() {
  rdma::WorkCompletion completions[32];
  const std::size_t count = device_.poll(completions);
  for (const rdma::WorkCompletion& wc : std::span(completions, count)) take(wc);
}

void RawEndpoint::take(const rdma::WorkCompletion& wc) {
  if (wc.status != rdma::WcStatus::Success) {
    if (!failed) first_error = wc.status;
    failed = true;
  }
  if (wc.opcode != rdma::WcOpcode::Receive) {
    send_completions.push_back(wc);
    return;
  }
  if (wc.status != rdma::WcStatus::Success) return;
  std::byte* at = receive_region_.bytes.data() + wc.wr_id * receive_bytes_;
  on_message(false, {at, wc.byte_len});
  inbox.push_back({Bytes(at, at + wc.byte_len), wc.remote_invalidate});
  const rdma::RecvWr wr{wc.wr_id, {at, receive_bytes_, receive_region_.lkey}};
  qp_->post_recv({&wr, 1});
}

// --- Messages

namespace {

constexpr std::size_t kWordsShown = 48;

}  // namespace

// Not inline, because gcc 12 warns of an overflow when it sees the size of a new vector.
void append(Bytes& to, std::span<const std::byte> more) {
  to.insert(to.end(), more.begin(), more.end());
}

Bytes RawCall::header() const {
  Bytes out = words({xid, version, credits, proc});
  const auto segment = [&out](const rpcrdma::Segment& s) {
    append(out, words({static_cast<std::uint32_t>(s.handle), s.length,
                       static_cast<std::uint32_t>(s.offset >> 32), static_cast<std::uint32_t>(s.offset)}));
  };
  for (const RawRead& read : reads) {
    append(out, words({1, read.position}));
    segment(read.segment);
  }
  append(out, words({0}));
  for (const auto& chunk : writes) {
    append(out, words({1, static_cast<std::uint32_t>(chunk.size())}));
    for (const auto& s : chunk) segment(s);
  }
  append(out, words({0}));
  if (!reply) {
    append(out, words({0}));
  } else {
    append(out, words({1, static_cast<std::uint32_t>(reply->size())}));
    for (const auto& s : *reply) segment(s);
  }
  return out;
}

std::string shown(const char* what, std::span<const std::byte> message) {
  std::string line = std::string(what) + " " + std::to_string(message.size()) + " bytes:";
  for (std::size_t i = 0; i < smaller_of(message.size() / 4, kWordsShown); ++i) {
    char word[12];
    std::snprintf(word, sizeof word, " %08X", word_at(message, i));
    line += word;
  }
  if (message.size() / 4 > kWordsShown) line += " ...";
  return line;
}

}  // namespace sluice::conformance
