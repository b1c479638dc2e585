// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpc/message.h"

#include <optional>

namespace sluice::rpc {
namespace {

/// Decodes an opaque_auth. Returns false if its body is too long. The caller checks the reader for
/// truncation.
bool decode_auth(xdr::Reader& reader, OpaqueAuth& auth) noexcept {
  const std::byte* const head = reader.units(2);
  if (head == nullptr) return true;
  auth.flavor = static_cast<AuthFlavor>(xdr::load_u32(head));
  const std::uint32_t bytes = xdr::load_u32(head + xdr::kUnit);
  if (bytes > kMaxAuthBytes) return false;
  auth.body = reader.opaque_fixed(bytes);
  return true;
}

void encode_auth(xdr::Writer& writer, const OpaqueAuth& auth) noexcept {
  writer.words(auth.flavor, auth.body.size());
  if (!auth.body.empty()) writer.opaque_fixed(auth.body);
}

void encode_reply_start(xdr::Writer& writer, Xid xid, ReplyStat stat) noexcept {
  writer.words(xid, MessageType::Reply, stat);
}

VersionRange decode_range(xdr::Reader& reader) noexcept {
  VersionRange range;
  range.low = reader.u32();
  range.high = reader.u32();
  return range;
}

bool decode_accepted(xdr::Reader& reader, ReplyHeader& header) noexcept {
  if (!decode_auth(reader, header.verifier)) return false;
  const std::uint32_t stat = reader.u32();
  if (stat > static_cast<std::uint32_t>(AcceptStat::SystemErr)) return false;
  header.accept = static_cast<AcceptStat>(stat);
  if (header.accept == AcceptStat::ProgMismatch) header.supported = decode_range(reader);
  return reader.ok();
}

bool decode_denied(xdr::Reader& reader, ReplyHeader& header) noexcept {
  const std::uint32_t stat = reader.u32();
  if (stat > static_cast<std::uint32_t>(RejectStat::AuthError)) return false;
  header.reject = static_cast<RejectStat>(stat);
  if (header.reject == RejectStat::RpcMismatch)
    header.supported = decode_range(reader);
  else
    header.auth = static_cast<AuthStat>(reader.u32());
  return reader.ok();
}

}  // namespace

namespace {

enum : std::uint32_t { kServiceNone = 1, kServiceIntegrity = 2 };

/// Returns the RPCSEC_GSS service of a call with data. Returns nothing for other calls, and for a credential
/// that cannot be decoded.
std::optional<std::uint32_t> gss_service(const OpaqueAuth& credential) noexcept {
  enum : std::uint32_t { kGssVersion = 1, kProcedureData = 0 };
  xdr::Reader reader(credential.body);
  const std::uint32_t version = reader.u32();
  const std::uint32_t procedure = reader.u32();
  reader.u32();  // seq_num
  const std::uint32_t service = reader.u32();
  if (!reader.ok() || version != kGssVersion || procedure != kProcedureData) return std::nullopt;
  return service;
}

}  // namespace

bool is_wrapped_gss(const OpaqueAuth& credential) noexcept {
  return gss_service(credential) != kServiceNone;
}

bool has_integrity(const OpaqueAuth& credential) noexcept {
  return credential.flavor == AuthFlavor::RpcSecGss && gss_service(credential) == kServiceIntegrity;
}

void encode_call(xdr::Writer& writer, const CallHeader& header) noexcept {
  writer.words(header.xid, MessageType::Call, kRpcVersion, header.program, header.version, header.procedure);
  encode_auth(writer, header.credential);
  encode_auth(writer, header.verifier);
}

ReplyDecodeResult decode_any_reply(xdr::Reader& reader) noexcept {
  ReplyDecodeResult result;
  ReplyHeader& header = result.header;
  header.xid = static_cast<Xid>(reader.u32());
  const std::uint32_t type = reader.u32();
  const std::uint32_t stat = reader.u32();
  if (!reader.ok() || type != static_cast<std::uint32_t>(MessageType::Reply)) return result;
  if (stat > static_cast<std::uint32_t>(ReplyStat::Denied)) return result;
  header.stat = static_cast<ReplyStat>(stat);
  result.ok =
      header.stat == ReplyStat::Accepted ? decode_accepted(reader, header) : decode_denied(reader, header);
  return result;
}

void encode_accepted(xdr::Writer& writer, Xid xid, const OpaqueAuth& verifier, AcceptStat stat) noexcept {
  if (verifier.body.empty())
    return writer.words(xid, MessageType::Reply, ReplyStat::Accepted, verifier.flavor, 0, stat);
  encode_reply_start(writer, xid, ReplyStat::Accepted);
  encode_auth(writer, verifier);
  writer.u32(static_cast<std::uint32_t>(stat));
}

void encode_prog_mismatch(xdr::Writer& writer, Xid xid, const OpaqueAuth& verifier,
                          VersionRange supported) noexcept {
  encode_accepted(writer, xid, verifier, AcceptStat::ProgMismatch);
  writer.u32(supported.low);
  writer.u32(supported.high);
}

void encode_rpc_mismatch(xdr::Writer& writer, Xid xid) noexcept {
  encode_reply_start(writer, xid, ReplyStat::Denied);
  writer.u32(static_cast<std::uint32_t>(RejectStat::RpcMismatch));
  writer.u32(kRpcVersion);
  writer.u32(kRpcVersion);
}

void encode_auth_error(xdr::Writer& writer, Xid xid, AuthStat stat) noexcept {
  encode_reply_start(writer, xid, ReplyStat::Denied);
  writer.u32(static_cast<std::uint32_t>(RejectStat::AuthError));
  writer.u32(static_cast<std::uint32_t>(stat));
}

AuthSysDecodeResult decode_auth_sys(std::span<const std::byte> body) noexcept {
  AuthSysDecodeResult result;
  xdr::Reader reader(body);
  AuthSys& sys = result.sys;
  sys.stamp = reader.u32();
  sys.machine_name = reader.string(kMaxMachineName);
  sys.uid = reader.u32();
  sys.gid = reader.u32();
  const std::uint32_t count = reader.u32();
  if (!reader.ok() || count > kMaxAuthSysGids) return result;
  sys.gid_count = count;
  for (std::uint32_t i = 0; i < count; ++i) sys.gids[i] = reader.u32();
  result.ok = reader.ok();
  return result;
}

void encode_auth_sys(xdr::Writer& writer, const AuthSys& sys) noexcept {
  writer.u32(sys.stamp);
  writer.string(sys.machine_name);
  writer.u32(sys.uid);
  writer.u32(sys.gid);
  if (sys.gid_count > kMaxAuthSysGids) return writer.fail();
  writer.u32(sys.gid_count);
  for (std::uint32_t i = 0; i < sys.gid_count; ++i) writer.u32(sys.gids[i]);
}

}  // namespace sluice::rpc
