// SPDX-License-Identifier: Apache-2.0
//
// ONC RPC call and reply headers (RFC 5531, section 9), decoded in place and encoded into the caller's
// buffer. Credentials and verifiers of any flavor, RPCSEC_GSS included, are passed through as opaque bytes.
// Decoded headers point into the message, which must outlive them. Pure, no allocation; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "dataplane/xdr/cursor.h"

namespace sluice::rpc {

enum class Xid : std::uint32_t {};

enum class MessageType : std::uint32_t { Call = 0, Reply = 1 };
enum class ReplyStat : std::uint32_t { Accepted = 0, Denied = 1 };
enum class AcceptStat : std::uint32_t {
  Success = 0,
  ProgUnavail = 1,
  ProgMismatch = 2,
  ProcUnavail = 3,
  GarbageArgs = 4,
  SystemErr = 5,
};
enum class RejectStat : std::uint32_t { RpcMismatch = 0, AuthError = 1 };
enum class AuthStat : std::uint32_t {
  Ok = 0,
  BadCred = 1,
  RejectedCred = 2,
  BadVerf = 3,
  RejectedVerf = 4,
  TooWeak = 5,
  InvalidResp = 6,
  Failed = 7,
  GssCredProblem = 13,
  GssCtxProblem = 14,
};
enum class AuthFlavor : std::uint32_t { None = 0, Sys = 1, Short = 2, Dh = 3, RpcSecGss = 6, Tls = 7 };

inline constexpr std::uint32_t kRpcVersion = 2;
/// Maximum size of the body of an opaque_auth (RFC 5531, section 8.2).
inline constexpr std::uint32_t kMaxAuthBytes = 400;
/// Size of the shortest accepted reply: xid, msg_type, reply_stat, verifier flavor and length, accept_stat.
inline constexpr std::size_t kMinReplyBytes = 24;
/// Size of the shortest reply, which is a denied one: xid, msg_type, reply_stat, reject_stat, auth_stat.
inline constexpr std::size_t kMinDeniedReplyBytes = 20;
/// Size of the shortest call: xid, msg_type, rpcvers, prog, vers, proc, two empty opaque_auth.
inline constexpr std::size_t kMinCallBytes = 40;

/// Credential or verifier. `body` points into the message from which it was decoded.
struct OpaqueAuth {
  AuthFlavor flavor = AuthFlavor::None;
  std::span<const std::byte> body;
};

/// Returns true for RPCSEC_GSS with integrity or privacy (RFC 2203, section 5.3.2). Arguments and results are
/// wrapped then, so nothing in them may be reduced (RFC 8166, section 8.2.2; V1-176). An RPCSEC_GSS
/// credential that cannot be decoded counts as wrapped.
bool is_wrapped_gss(const OpaqueAuth& credential) noexcept;
inline bool is_wrapped(const OpaqueAuth& credential) noexcept {
  return credential.flavor == AuthFlavor::RpcSecGss && is_wrapped_gss(credential);
}
/// Returns true for RPCSEC_GSS with integrity, which signs the arguments but does not encrypt them.
bool has_integrity(const OpaqueAuth& credential) noexcept;

struct CallHeader {
  Xid xid{};
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
  OpaqueAuth credential;
  OpaqueAuth verifier;
};

enum class CallDecode {
  Ok,
  Truncated,    ///< message ends inside the header; only a transport error can be returned
  NotACall,     ///< msg_type is not CALL
  RpcMismatch,  ///< rpcvers is not 2; answer with encode_rpc_mismatch()
  BadCred,      ///< credential exceeds kMaxAuthBytes or is AUTH_TLS; answer with encode_auth_error(BadCred)
  BadVerf,      ///< verifier exceeds kMaxAuthBytes; answer with encode_auth_error(BadVerf)
};

/// Consumes the call header, up to the first argument byte. Sets all of `header` if it returns Ok, and at
/// least its xid unless it returns Truncated.
///
/// AUTH_TLS requests TLS from the peer of a transport (RFC 9289, section 4.1). No transport of Sluice offers
/// TLS. A forwarded AUTH_TLS call would make the server expect a handshake on a connection of the gateway.
///
/// Reads word by word after checking lengths, because every call of a client passes through this function.
[[gnu::always_inline]] inline CallDecode decode_call(xdr::Reader& reader, CallHeader& header) noexcept {
  constexpr std::size_t kCalled = 3 * xdr::kUnit;  // program, version, procedure
  constexpr std::size_t kAuthHead = 2 * xdr::kUnit;
  constexpr std::size_t kCredential = 2 * kCalled + kAuthHead;
  const std::span<const std::byte> bytes = reader.rest();
  const auto word = [at = bytes.data()](std::size_t from) { return xdr::load_u32(at + from); };
  const auto truncated = [&reader] { return reader.fail(), CallDecode::Truncated; };

  if (bytes.size() < kCalled) return truncated();
  header.xid = static_cast<Xid>(word(0));
  if (word(xdr::kUnit) != static_cast<std::uint32_t>(MessageType::Call)) return CallDecode::NotACall;
  if (word(2 * xdr::kUnit) != kRpcVersion) return CallDecode::RpcMismatch;
  if (bytes.size() < kCredential) return truncated();
  header.program = word(kCalled);
  header.version = word(kCalled + xdr::kUnit);
  header.procedure = word(kCalled + 2 * xdr::kUnit);

  const std::uint32_t credential_bytes = word(kCredential - xdr::kUnit);
  const auto flavor = static_cast<AuthFlavor>(word(kCredential - kAuthHead));
  if (credential_bytes > kMaxAuthBytes || flavor == AuthFlavor::Tls) return CallDecode::BadCred;
  const std::size_t verifier = kCredential + xdr::padded(credential_bytes) + kAuthHead;
  if (bytes.size() < verifier) return truncated();
  const std::uint32_t verifier_bytes = word(verifier - xdr::kUnit);
  if (verifier_bytes > kMaxAuthBytes) return CallDecode::BadVerf;
  const std::size_t end = verifier + xdr::padded(verifier_bytes);
  if (bytes.size() < end) return truncated();
  header.credential = {flavor, bytes.subspan(kCredential, credential_bytes)};
  header.verifier = {static_cast<AuthFlavor>(word(verifier - kAuthHead)),
                     bytes.subspan(verifier, verifier_bytes)};
  reader.skip(end);
  return CallDecode::Ok;
}
void encode_call(xdr::Writer& writer, const CallHeader& header) noexcept;

struct VersionRange {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};

struct ReplyHeader {
  Xid xid{};
  ReplyStat stat = ReplyStat::Accepted;
  OpaqueAuth verifier;                          ///< valid if Accepted
  AcceptStat accept = AcceptStat::Success;      ///< valid if Accepted
  RejectStat reject = RejectStat::RpcMismatch;  ///< valid if Denied
  AuthStat auth = AuthStat::Ok;                 ///< valid if Denied with AuthError
  VersionRange supported;                       ///< valid after ProgMismatch or RpcMismatch

  bool success() const noexcept { return stat == ReplyStat::Accepted && accept == AcceptStat::Success; }
};

struct ReplyDecodeResult {
  bool ok = false;
  ReplyHeader header;
};

/// Writes an accepted reply with any accept_stat but ProgMismatch. After Success, the caller appends the
/// results.
void encode_accepted(xdr::Writer& writer, Xid xid, const OpaqueAuth& verifier, AcceptStat stat) noexcept;
/// Writes an accepted reply with Success and an empty verifier, kMinReplyBytes in size.
inline void encode_success(std::byte* to, Xid xid) noexcept {
  xdr::store_words(to, xid, MessageType::Reply, ReplyStat::Accepted, AuthFlavor::None, 0,
                   AcceptStat::Success);
}
/// Returns true if a reply begins as encode_success() writes it. Ignores the xid. If false, decode_reply()
/// may still find SUCCESS, with another verifier.
inline bool begins_with_success(std::span<const std::byte> reply) noexcept {
  if (reply.size() < kMinReplyBytes) return false;
  const std::byte* const at = reply.data() + xdr::kUnit;
  constexpr auto kReply = static_cast<std::uint32_t>(MessageType::Reply);
  return ((xdr::load_encoded_pair(at) ^ xdr::encoded_pair(kReply, 0)) |
          xdr::load_encoded_pair(at + 2 * xdr::kUnit) | xdr::load_encoded(at + 4 * xdr::kUnit)) == 0;
}

/// Decodes any reply header; decode_reply() is faster for most of them.
ReplyDecodeResult decode_any_reply(xdr::Reader& reader) noexcept;
/// Consumes the reply header. On success the reader is at the first result byte.
inline ReplyDecodeResult decode_reply(xdr::Reader& reader) noexcept {
  if (!begins_with_success(reader.rest())) return decode_any_reply(reader);
  ReplyDecodeResult result;
  result.ok = true;
  result.header.xid = static_cast<Xid>(reader.u32());
  reader.skip(kMinReplyBytes - xdr::kUnit);
  return result;
}
void encode_prog_mismatch(xdr::Writer& writer, Xid xid, const OpaqueAuth& verifier,
                          VersionRange supported) noexcept;
void encode_rpc_mismatch(xdr::Writer& writer, Xid xid) noexcept;
void encode_auth_error(xdr::Writer& writer, Xid xid, AuthStat stat) noexcept;

/// Limits of an AUTH_SYS credential (RFC 5531, Appendix A), in bytes and in groups.
inline constexpr std::uint32_t kMaxMachineName = 255;
inline constexpr std::uint32_t kMaxAuthSysGids = 16;

/// AUTH_SYS credential. Views point into the credential's body.
struct AuthSys {
  std::uint32_t stamp = 0;
  std::string_view machine_name;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t gid_count = 0;
  std::uint32_t gids[kMaxAuthSysGids] = {};
};

struct AuthSysDecodeResult {
  bool ok = false;
  AuthSys sys;
};

AuthSysDecodeResult decode_auth_sys(std::span<const std::byte> body) noexcept;
void encode_auth_sys(xdr::Writer& writer, const AuthSys& sys) noexcept;

}  // namespace sluice::rpc
