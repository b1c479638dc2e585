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
/// RFC 5531, section 8.2: the body of an opaque_auth.
inline constexpr std::uint32_t kMaxAuthBytes = 400;
/// xid, msg_type, reply_stat, verifier flavor and length, accept_stat: the shortest accepted reply.
inline constexpr std::size_t kMinReplyBytes = 24;
/// xid, msg_type, reply_stat, reject_stat, auth_stat: the shortest reply of all (a denied one).
inline constexpr std::size_t kMinDeniedReplyBytes = 20;
/// xid, msg_type, rpcvers, prog, vers, proc, two empty opaque_auth.
inline constexpr std::size_t kMinCallBytes = 40;

/// `body` points into the message it was decoded from.
struct OpaqueAuth {
  AuthFlavor flavor = AuthFlavor::None;
  std::span<const std::byte> body;
};

/// RPCSEC_GSS with integrity or privacy (RFC 2203, section 5.3.2): arguments and results are wrapped, so
/// nothing in them may be reduced (RFC 8166, section 8.2.2; V1-176). A credential that cannot be decoded
/// counts as wrapped.
bool is_wrapped(const OpaqueAuth& credential) noexcept;
/// RPCSEC_GSS with integrity: the arguments are signed, not encrypted.
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
  Truncated,    ///< ends inside the header: only a transport error can be returned
  NotACall,     ///< msg_type is not CALL
  RpcMismatch,  ///< rpcvers is not 2: answer encode_rpc_mismatch()
  BadCred,      ///< credential over kMaxAuthBytes, or AUTH_TLS: answer encode_auth_error(BadCred)
  BadVerf,      ///< verifier over kMaxAuthBytes: answer encode_auth_error(BadVerf)
};

/// Consumes the call header, up to the first argument byte. With Ok all of `header` is set, and its xid with
/// every status but Truncated.
///
/// AUTH_TLS asks the end of a transport for TLS (RFC 9289, section 4.1). No transport of ours offers it, and a call that
/// was forwarded would have the server expect a handshake on a connection of the gateway.
///
/// Word by word, each after its length was checked: every call of a client comes through here.
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
  OpaqueAuth verifier;                          ///< Accepted
  AcceptStat accept = AcceptStat::Success;      ///< Accepted
  RejectStat reject = RejectStat::RpcMismatch;  ///< Denied
  AuthStat auth = AuthStat::Ok;                 ///< Denied with AuthError
  VersionRange supported;                       ///< ProgMismatch or RpcMismatch

  bool success() const noexcept { return stat == ReplyStat::Accepted && accept == AcceptStat::Success; }
};

struct ReplyDecodeResult {
  bool ok = false;
  ReplyHeader header;
};

/// Consumes the reply header; on success, up to the first result byte.
ReplyDecodeResult decode_reply(xdr::Reader& reader) noexcept;

/// Accepted reply with any accept_stat but ProgMismatch; after Success, the caller appends the results.
void encode_accepted(xdr::Writer& writer, Xid xid, const OpaqueAuth& verifier, AcceptStat stat) noexcept;
/// The same of Success with an empty verifier, into kMinReplyBytes.
inline void encode_success(std::byte* to, Xid xid) noexcept {
  xdr::store_words(to, xid, MessageType::Reply, ReplyStat::Accepted, AuthFlavor::None, 0,
                   AcceptStat::Success);
}
/// Whether a reply begins with what encode_success() makes. If not, decode_reply() may still find SUCCESS, with another verifier.
inline bool begins_with_success(std::span<const std::byte> reply) noexcept {
  if (reply.size() < kMinReplyBytes) return false;
  const std::byte* const at = reply.data() + xdr::kUnit;
  constexpr auto kReply = static_cast<std::uint32_t>(MessageType::Reply);
  return ((xdr::load_encoded_pair(at) ^ xdr::encoded_pair(kReply, 0)) |
          xdr::load_encoded_pair(at + 2 * xdr::kUnit) | xdr::load_encoded(at + 4 * xdr::kUnit)) == 0;
}
void encode_prog_mismatch(xdr::Writer& writer, Xid xid, const OpaqueAuth& verifier,
                          VersionRange supported) noexcept;
void encode_rpc_mismatch(xdr::Writer& writer, Xid xid) noexcept;
void encode_auth_error(xdr::Writer& writer, Xid xid, AuthStat stat) noexcept;

/// AUTH_SYS credential (RFC 5531, Appendix A). Views point into the credential's body.
inline constexpr std::uint32_t kMaxMachineName = 255;
inline constexpr std::uint32_t kMaxAuthSysGids = 16;

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
