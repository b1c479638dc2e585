// SPDX-License-Identifier: Apache-2.0
//
// Messages of a client, parsed by hand without code of the transport under test. Pure functions, any thread.
#pragma once

#include "cli/conformance/messages.h"

namespace sluice::conformance {

/// A message as it was received. If the version in its header differs from the version by which it is read,
/// only the four fixed words are read.
struct ClientMessage {
  Bytes bytes;
  RawCall header;                ///< header as far as it could be read; `proc` is the type in version 2
  std::uint32_t version = 1;     ///< version by which the message is read
  std::uint32_t flags = 0;       ///< version 2 only, as is `invalidate`
  std::uint32_t invalidate = 0;  ///< rdma_inv_handle
  std::size_t header_bytes = 0;  ///< offset of the payload, or of the body of properties and errors
  std::string defect;            ///< reason why the header cannot be read completely; empty if it can
  bool odd_discriminator = false;

  std::span<const std::byte> payload() const { return std::span(bytes).subspan(header_bytes); }
  bool readable() const { return defect.empty(); }
  bool response() const { return (flags & v2::kResponse) != 0; }
  bool more() const { return (flags & v2::kMore) != 0; }
  bool has_chunks() const { return !header.reads.empty() || !header.writes.empty() || header.reply; }
  /// Reports whether the message is a NOMSG without chunks, which only grants credits (V2-040).
  bool is_grant() const { return version == 2 && of_its_version() && header.proc == 1 && !has_chunks(); }
  bool is_rpc() const { return of_its_version() && header.proc <= 1 && !is_grant(); }
  /// Reports whether the message is a call. In version 1 msg_type of the RPC message determines the
  /// direction. An RDMA_NOMSG of a client is a call (V1-157).
  bool is_call() const {
    return is_rpc() && (version == 2 ? !response() : header.proc == 1 || word_at(payload(), 1) == 0);
  }
  bool is_reply() const {
    return is_rpc() && (version == 2 ? response() : header.proc == 0 && word_at(payload(), 1) == 1);
  }

 private:
  bool of_its_version() const { return readable() && header.version == version; }
};
ClientMessage read_client_message(Bytes bytes, std::uint32_t version = 1);

/// The header of an RPC call, regardless of where the message was.
struct RpcCall {
  Bytes message;  ///< complete RPC message, as another transport would carry it
  bool readable = false;
  std::uint32_t xid = 0, program = 0, version = 0, procedure = 0;
  std::uint32_t flavor = 0;
  std::uint32_t gss_service = 0;  ///< RPCSEC_GSS: 1 none, 2 integrity, 3 privacy
  std::uint32_t gss_control = 0;  ///< RPCSEC_GSS: nonzero if the message creates or destroys a context
  std::size_t arguments = 0;      ///< offset of the arguments

  std::span<const std::byte> argument_bytes() const { return std::span(message).subspan(arguments); }
  bool is(std::uint32_t of_program, std::uint32_t of_version, std::uint32_t of_procedure) const {
    return readable && program == of_program && version == of_version && procedure == of_procedure;
  }
};
RpcCall read_rpc_call(Bytes message);

/// A Read chunk of a call, with the bytes of its segments in list order.
struct ReadChunk {
  std::uint32_t position = 0;
  std::vector<rpcrdma::Segment> segments{};
  Bytes bytes{};
  std::uint64_t length() const {
    std::uint64_t sum = 0;
    for (const auto& segment : segments) sum += segment.length;
    return sum;
  }
};
/// Returns the chunks in the order in which their positions first occur.
std::vector<ReadChunk> read_chunks(const RawCall& header);
/// Inserts the chunks into `stream`, which is the payload or the chunk of position zero. Returns nullopt if a
/// position is beyond the message or inside another chunk.
std::optional<Bytes> assembled(std::span<const std::byte> stream, std::vector<ReadChunk> chunks);

inline std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + 3) & ~std::uint64_t{3};
}

}  // namespace sluice::conformance
