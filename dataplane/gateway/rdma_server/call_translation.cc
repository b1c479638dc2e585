// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/rdma_server/call_translation.h"

#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/rdma_server/server_connection.h"
#include "dataplane/ulb/bindings.h"

namespace sluice::rdma_server {
namespace {

/// Minimum size in bytes of a result that gets a Write chunk. Smaller results return inline or in the Reply
/// chunk.
constexpr std::uint32_t kMinPlacedBytes = 1024;
/// Maximum bytes of a GSS mechanism's checksum. Kerberos uses up to 28 and a short prefix.
constexpr std::uint64_t kMaxChecksumBytes = 400;
/// Bytes reserved for the transport header of an inline call.
constexpr std::uint32_t kHeaderRoom = 128;

/// Answers which results the server placed in their Write chunks.
class ChunksOfReply final : public service::PlacedResults {
 public:
  ChunksOfReply(const ClientCall& call, const rpcrdma::Reply& reply) noexcept : call_(call), reply_(reply) {}

  bool placed(std::size_t index, std::uint32_t bytes) noexcept override {
    if (index >= call_.chunk_count || call_.chunk_bytes[index] == 0) return false;
    const auto where = reply_.item(index, bytes).where;
    defect_ = defect_ || where == rpcrdma::ItemResult::Where::Defect;
    return where == rpcrdma::ItemResult::Where::Placed;
  }
  void unreadable() noexcept override { unreadable_ = true; }

  /// Returns false if placed data has no position in the results, because that data would be lost silently.
  /// Placed data of an absent result is ignored (F-07, V1-109).
  bool consistent(std::span<const service::Item> items) const noexcept {
    if (defect_) return false;
    for (std::uint32_t i = 0; unreadable_ && i < call_.chunk_count; ++i)
      if (reply_.returned(i) > 0 && (i >= items.size() || !items[i].placed)) return false;
    return true;
  }

 private:
  const ClientCall& call_;
  const rpcrdma::Reply& reply_;
  bool defect_ = false;
  bool unreadable_ = false;
};

/// Returns the maximum size in bytes of the results of a call with integrity protection. Its arguments are
/// readable: they follow the length of the signed body and the sequence number (RFC 2203, section 5.3.2.2).
/// The results have the same wrapping. Returns `record_bytes` if nothing bounds them.
std::uint64_t max_integrity_results(const rpc::CallHeader& header, std::span<const std::byte> arguments,
                                    std::uint32_t record_bytes) noexcept {
  constexpr std::uint64_t kWrapping = 3 * xdr::kUnit + kMaxChecksumBytes;
  const service::Binding* const binding = ulb::find_binding(header.program, header.version);
  const bool bounded = binding != nullptr && binding->max_results_bytes != nullptr;
  xdr::Reader reader(arguments);
  const auto body = reader.opaque(record_bytes);
  if (!bounded || !rpc::has_integrity(header.credential) || !reader.ok() || body.size() < xdr::kUnit)
    return record_bytes;
  return kWrapping + binding->max_results_bytes(header.procedure, body.subspan(xdr::kUnit));
}

/// The eligible arguments of a call, and the call reduced by them.
struct ReducedCall {
  std::array<rdma::Sge, rpcrdma::kMaxReadItems> pieces;
  std::array<rpcrdma::ReadItem, rpcrdma::kMaxReadItems> items;
  std::size_t count = 0;
  std::span<const std::byte> payload;  ///< stored in the scratch memory
};

/// Write items of a call: one per Write chunk that plan_reply() has chosen.
struct OfferedChunks {
  std::array<rdma::Sge, kMaxPlacedItems> pieces;
  std::array<rpcrdma::WriteItem, kMaxPlacedItems> items;
};

/// Turns each eligible argument into a Read item that refers to `record`, whose memory is registered as
/// `lkey`. Copies the remaining arguments to `scratch`, which has room for the whole record.
void reduce_call(const ClientCall& call, std::span<std::byte> record, std::size_t arguments_at,
                 rdma::Lkey lkey, std::span<std::byte> scratch, ReducedCall& reduced) noexcept {
  std::array<service::Item, rpcrdma::kMaxReadItems> items;
  const std::size_t found = call.binding->argument_items(call.procedure, record.subspan(arguments_at), items);
  std::size_t bytes = 0;
  std::size_t from = 0;
  const auto keep = [&](std::size_t end) {
    SLUICE_INVARIANT_DEBUG(from <= end && bytes + (end - from) <= scratch.size(), buffer_bounds);
    std::memcpy(scratch.data() + bytes, record.data() + from, end - from);
    bytes += end - from;
  };
  for (std::size_t i = 0; i < found; ++i) {
    if (items[i].bytes == 0) continue;
    SLUICE_INVARIANT_DEBUG(reduced.count < reduced.items.size(), table_index);
    const std::size_t at = arguments_at + items[i].offset;
    keep(at);
    from = at + xdr::padded(std::size_t{items[i].bytes});
    rdma::Sge& piece = reduced.pieces[reduced.count];
    piece = {record.data() + at, items[i].bytes, lkey};
    reduced.items[reduced.count++] = {.position = static_cast<rpcrdma::Position>(at), .pieces = {&piece, 1}};
  }
  keep(record.size());
  reduced.payload = scratch.first(bytes);
}

/// Chooses the call's Write chunks, one per eligible result that the call requests. Returns an upper bound in
/// bytes for the rest of the reply. The whole reply has at most `record_bytes`.
std::uint32_t plan_reply(ClientCall& call, const rpc::CallHeader& header,
                         std::span<const std::byte> arguments, std::uint32_t record_bytes) noexcept {
  const service::Binding& binding = *call.binding;
  call.announces_sizes = binding.announces(header.procedure, arguments);
  std::uint64_t most = rpc::kMinReplyBytes;
  if (header.credential.flavor != rpc::AuthFlavor::None && header.credential.flavor != rpc::AuthFlavor::Sys)
    most += rpc::kMaxAuthBytes;
  if (rpc::is_wrapped(header.credential)) {
    const std::uint64_t results = max_integrity_results(header, arguments, record_bytes);
    return static_cast<std::uint32_t>(smaller_of<std::uint64_t>(most + results, record_bytes));
  }
  if (binding.max_results_bytes == nullptr) return record_bytes;
  most += binding.max_results_bytes(header.procedure, arguments);
  if (most <= kSmallReplyBytes) return static_cast<std::uint32_t>(most);
  if (binding.expected_items != nullptr)
    call.chunk_count =
        static_cast<std::uint32_t>(binding.expected_items(header.procedure, arguments, call.chunk_bytes));
  SLUICE_INVARIANT_DEBUG(call.chunk_count <= call.chunk_bytes.size(), table_index);
  for (std::uint32_t i = 0; i < call.chunk_count; ++i) {
    const std::uint64_t bytes = xdr::padded(std::size_t{call.chunk_bytes[i]});
    call.chunk_at[i] = call.all_chunks_bytes;
    if (bytes < kMinPlacedBytes || call.all_chunks_bytes + bytes > record_bytes) {
      call.chunk_bytes[i] = 0;
      continue;
    }
    call.all_chunks_bytes += static_cast<std::uint32_t>(bytes);
    most -= smaller_of(most, bytes);
  }
  SLUICE_INVARIANT_DEBUG(call.all_chunks_bytes <= record_bytes, buffer_bounds);
  return static_cast<std::uint32_t>(smaller_of<std::uint64_t>(most, record_bytes - call.all_chunks_bytes));
}

/// Returns the call's Write chunks as Write items in `call.reply`, whose memory is registered as `lkey`.
std::span<const rpcrdma::WriteItem> offer_chunks(const ClientCall& call, rdma::Lkey lkey,
                                                 OfferedChunks& offered) noexcept {
  if (call.all_chunks_bytes == 0) return {};
  SLUICE_INVARIANT_DEBUG(call.reply.address != nullptr && call.chunk_count <= kMaxPlacedItems, buffer_bounds);
  for (std::uint32_t i = 0; i < call.chunk_count; ++i) {
    offered.pieces[i] = {call.reply.address + call.chunk_at[i], call.chunk_bytes[i], lkey};
    if (call.chunk_bytes[i] > 0) offered.items[i].pieces = {&offered.pieces[i], 1};
  }
  return std::span(offered.items).first(call.chunk_count);
}

}  // namespace

Submission submit_call(ClientCall& call, const OutgoingCall& outgoing, ServerSide& side,
                       ClientBuffers& buffers) noexcept {
  std::span<std::byte> message = outgoing.message;
  SLUICE_INVARIANT_DEBUG(call.state == ClientCall::State::Outstanding && call.reply.address == nullptr,
                         gateway_state);
  SLUICE_INVARIANT_DEBUG(outgoing.arguments_at <= message.size(), buffer_bounds);
  auto arguments = message.subspan(outgoing.arguments_at);
  const service::CallChanges changes =
      call.binding->change(call.procedure, arguments, side.config().withheld);
  call.tells_withheld = changes.results_tell;
  if (changes.unknown_operation) side.note_unknown_operation(*changes.unknown_operation);
  if (changes.arguments_bytes) {
    arguments = arguments.first(*changes.arguments_bytes);
    message = message.first(outgoing.arguments_at + arguments.size());
  }
  const std::uint32_t planned = plan_reply(call, outgoing.header, arguments, side.config().record_bytes());
  const auto max_reply = static_cast<std::uint32_t>(smaller_of<std::uint64_t>(planned, outgoing.reply_room));
  // A longer reply without Write chunks stays in the memory of its Reply chunk.
  const bool to_be_copied = max_reply > kSmallReplyBytes && max_reply <= tcp::kStreamBytes;
  if (call.all_chunks_bytes > 0 || call.names_items || to_be_copied) {
    call.reply = buffers.acquire(call.all_chunks_bytes + max_reply);
    if (call.reply.address == nullptr) return Submission::NoMemory;
  }
  ReducedCall reduced;
  reduced.payload = message;
  const bool is_long = message.size() + kHeaderRoom > side.config().inline_bytes;
  const bool is_reduced = is_long && call.binding->argument_items != nullptr;
  if (is_reduced) {
    if (!outgoing.lkey) {
      call.arguments = buffers.acquire(message.size());
      if (call.arguments.address == nullptr) return Submission::NoMemory;
      std::memcpy(call.arguments.address, message.data(), message.size());
      message = {call.arguments.address, message.size()};
    }
    const rdma::Lkey lkey = outgoing.lkey ? *outgoing.lkey : side.lkey(call.arguments);
    reduce_call(call, message, outgoing.arguments_at, lkey, side.scratch(), reduced);
  }
  OfferedChunks chunks;
  const std::uint64_t timeout_ns = side.config().call_timeout_ns;
  if (!call.server->submit(call,
                           {.payload = reduced.payload,
                            .reads = std::span(reduced.items).first(reduced.count),
                            .writes = offer_chunks(call, side.lkey(call.reply), chunks),
                            .max_reply_bytes = max_reply,
                            .send_once = outgoing.header.credential.flavor == rpc::AuthFlavor::RpcSecGss,
                            .deadline_ns = timeout_ns == 0 ? 0 : call.begun_ns + timeout_ns}))
    return Submission::NoMemory;
  if (call.refused) return Submission::Refused;
  return reduced.count > 0 ? Submission::Reduced : Submission::Submitted;
}

bool read_reply(ClientCall& call, const rpcrdma::Reply& reply, std::span<std::byte> message,
                ServerSide& side) noexcept {
  xdr::Reader reader(message);
  const rpc::ReplyDecodeResult header = rpc::decode_reply(reader);
  if (!header.ok) return false;
  const std::size_t results_at = message.size() - reader.remaining();
  SLUICE_INVARIANT_DEBUG(call.binding != nullptr && call.server != nullptr, gateway_state);
  const bool has_items = (call.all_chunks_bytes > 0 || call.names_items) && header.header.success() &&
                         call.binding->result_items != nullptr;
  ChunksOfReply chunks(call, reply);
  std::size_t count = 0;
  if (has_items) count = call.binding->result_items(call.procedure, reader.rest(), &chunks, call.items);
  if (!chunks.consistent(std::span(call.items).first(count))) return false;
  if ((call.announces_sizes || call.tells_withheld) && header.header.success())
    side.compared().note(*call.binding, message.subspan(results_at), &chunks);
  if (call.announces_sizes && header.header.success())
    call.binding->cap_sizes(message.subspan(results_at), side.config().carried(), &chunks);
  if (call.tells_withheld && header.header.success())
    call.binding->withhold_in_results(message.subspan(results_at), side.config().withheld, &chunks);
  for (service::Item& item : std::span(call.items).first(count)) item.offset += results_at;
  call.item_count = static_cast<std::uint32_t>(count);
  return true;
}

/// Splices the placed data and its padding into the message.
void assemble_reply(ClientCall& call, std::span<const std::byte> message) noexcept {
  std::size_t from = xdr::kUnit;
  call.total_bytes = static_cast<std::uint32_t>(message.size());
  call.piece_count = 0;
  for (std::uint32_t i = 0; i < call.item_count; ++i) {
    const service::Item& item = call.items[i];
    if (!item.placed) continue;
    SLUICE_INVARIANT_DEBUG(i < call.chunk_count && item.bytes <= call.chunk_bytes[i], buffer_bounds);
    SLUICE_INVARIANT_DEBUG(from <= item.offset && item.offset <= message.size(), buffer_bounds);
    std::byte* const data = call.reply.address + call.chunk_at[i];
    const std::size_t padded = xdr::padded(std::size_t{item.bytes});
    std::memset(data + item.bytes, 0, padded - item.bytes);
    call.pieces[call.piece_count++] = message.subspan(from, item.offset - from);
    call.pieces[call.piece_count++] = {data, padded};
    call.total_bytes += static_cast<std::uint32_t>(padded);
    from = item.offset;
  }
  if (from < message.size()) call.pieces[call.piece_count++] = message.subspan(from);
  SLUICE_INVARIANT_DEBUG(call.piece_count <= call.pieces.size(), table_index);
}

}  // namespace sluice::rdma_server
