// SPDX-License-Identifier: Apache-2.0
//
// The MOUNT service: its messages, procedures and registrations, and the exports of the data plane.
#include "controlplane/mount/mount_service.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "controlplane/events/journal.h"
#include "controlplane/events/kinds.h"
#include "controlplane/mount/export_sources.h"
#include "controlplane/mount/exports.h"
#include "controlplane/mount/protocol.h"
#include "dataplane/base/net_address.h"
#include "dataplane/log/log.h"
#include "dataplane/segment/checked.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/layout.h"

namespace sluice::mount {
namespace {

/// Skips a list of groups, which are names.
void skip_groups(xdr::Reader& reader) {
  while (reader.boolean()) reader.string(kMaxName);
}

}  // namespace

void encode(xdr::Writer& writer, const MountAnswer& answer) {
  writer.u32(static_cast<std::uint32_t>(answer.status));
  if (answer.status != MountStatus::Ok) return;
  writer.opaque(answer.handle);
  writer.u32(static_cast<std::uint32_t>(answer.flavors.size()));
  for (const std::uint32_t flavor : answer.flavors) writer.u32(flavor);
}

std::optional<MountAnswer> decode_mount_answer(xdr::Reader& reader) {
  MountAnswer answer{.status = static_cast<MountStatus>(reader.u32()), .handle = {}, .flavors = {}};
  if (answer.status != MountStatus::Ok) return reader.ok() ? std::optional(answer) : std::nullopt;
  const auto handle = reader.opaque(kMaxHandle);
  answer.handle.assign(handle.begin(), handle.end());
  const std::uint32_t flavors = reader.u32();
  for (std::uint32_t i = 0; i < std::min(flavors, kMaxFlavors); ++i) answer.flavors.push_back(reader.u32());
  return reader.ok() ? std::optional(answer) : std::nullopt;
}

void encode(xdr::Writer& writer, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    writer.boolean(true);
    writer.string(path);
    writer.boolean(false);
  }
  writer.boolean(false);
}

std::size_t encoded_bytes(const std::vector<std::string>& paths) {
  std::size_t bytes = xdr::kUnit;
  for (const std::string& path : paths) bytes += 3 * xdr::kUnit + xdr::padded(path.size());
  return bytes;
}

std::optional<std::vector<std::string>> decode_paths(xdr::Reader& reader) {
  std::vector<std::string> paths;
  while (reader.boolean()) {
    paths.emplace_back(reader.string(kMaxPath));
    skip_groups(reader);
  }
  return reader.ok() ? std::optional(std::move(paths)) : std::nullopt;
}

namespace {

/// Maximum size of any reply except a list of exports.
constexpr std::size_t kShortReplyBytes =
    rpc::kMinReplyBytes + 3 * xdr::kUnit + kMaxHandle + kMaxFlavors * xdr::kUnit;

void reply_stat(const Procedures::Reply& reply, rpc::Xid xid, rpc::AcceptStat stat) {
  std::array<std::byte, kShortReplyBytes> room;
  xdr::Writer writer(room);
  rpc::encode_accepted(writer, xid, {}, stat);
  reply(writer.written());
}

bool known_flavor(rpc::AuthFlavor flavor) {
  return flavor == rpc::AuthFlavor::None || flavor == rpc::AuthFlavor::Sys ||
         flavor == rpc::AuthFlavor::Short;
}

/// Returns the versions that are served for a procedure. Versions 1 and 2 (RFC 1094, appendix A) differ from
/// version 3 in the results of MNT, which are file handles of NFS 2. The `showmount` programs of FreeBSD and
/// macOS call version 1, and macOS calls UMNT of version 1 after a mount by version 3.
constexpr rpc::VersionRange versions_of(std::uint32_t procedure) {
  return {procedure == kMnt ? kMountVersion : kOldestMountVersion, kMountVersion};
}

/// Encodes the reply to a call that is for no served version of MOUNT or has an unacceptable header. Returns
/// an empty span if the call may be executed.
std::span<const std::byte> refusal(xdr::Writer& writer, rpc::CallDecode decoded,
                                   const rpc::CallHeader& header) {
  if (decoded == rpc::CallDecode::RpcMismatch)
    rpc::encode_rpc_mismatch(writer, header.xid);
  else if (decoded == rpc::CallDecode::BadCred)
    rpc::encode_auth_error(writer, header.xid, rpc::AuthStat::BadCred);
  else if (decoded == rpc::CallDecode::BadVerf)
    rpc::encode_auth_error(writer, header.xid, rpc::AuthStat::BadVerf);
  else if (!known_flavor(header.credential.flavor))
    rpc::encode_auth_error(writer, header.xid, rpc::AuthStat::RejectedCred);
  else if (header.program != kMountProgram)
    rpc::encode_accepted(writer, header.xid, {}, rpc::AcceptStat::ProgUnavail);
  else if (const auto [low, high] = versions_of(header.procedure);
           header.version < low || header.version > high)
    rpc::encode_prog_mismatch(writer, header.xid, {}, {low, high});
  return writer.written();
}

}  // namespace

bool Procedures::answer(std::span<const std::byte> call, const onc_rpc::Asker& asker,
                        std::size_t max_reply_bytes, const Reply& reply) {
  xdr::Reader reader(call);
  rpc::CallHeader header;
  const rpc::CallDecode decoded = rpc::decode_call(reader, header);
  if (decoded == rpc::CallDecode::Truncated || decoded == rpc::CallDecode::NotACall) {
    count(statistics_.malformed);
    return false;
  }
  count(statistics_.calls);
  std::array<std::byte, kShortReplyBytes> room;
  xdr::Writer writer(room);
  if (const auto refused = refusal(writer, decoded, header); !refused.empty()) {
    reply(refused);
    return true;
  }
  switch (header.procedure) {
    case kNull:
    case kUmnt:
    case kUmntAll:  // mounts are not recorded
      reply_stat(reply, header.xid, rpc::AcceptStat::Success);
      break;
    case kDump:
      rpc::encode_accepted(writer, header.xid, {}, rpc::AcceptStat::Success);
      writer.boolean(false);
      reply(writer.written());
      break;
    case kMnt:
      mount(header.xid, reader, asker, reply);
      break;
    case kExport:
      list(header.xid, asker, max_reply_bytes, reply);
      break;
    default:
      reply_stat(reply, header.xid, rpc::AcceptStat::ProcUnavail);
  }
  return true;
}

void Procedures::mount(rpc::Xid xid, xdr::Reader arguments, const onc_rpc::Asker& asker, const Reply& reply) {
  const std::string path(arguments.string(kMaxPath));
  if (!arguments.ok()) {
    count(statistics_.malformed);
    return reply_stat(reply, xid, rpc::AcceptStat::GarbageArgs);
  }
  exports_.mount(path, asker, [this, xid, path, asker, reply](const MountAnswer& answer) {
    if (answer.status == MountStatus::Acces || answer.status == MountStatus::Perm) refused(path, asker);
    std::array<std::byte, kShortReplyBytes> room;
    xdr::Writer writer(room);
    rpc::encode_accepted(writer, xid, {}, rpc::AcceptStat::Success);
    encode(writer, answer);
    reply(writer.written());
  });
}

void Procedures::refused(const std::string& path, const onc_rpc::Asker& asker) {
  count(statistics_.denied);
  journal_.add(events::MountDenied{.peer = to_string(asker.address), .path = path});
}

void Procedures::list(rpc::Xid xid, const onc_rpc::Asker& asker, std::size_t max_reply_bytes,
                      const Reply& reply) {
  exports_.list(asker, [xid, max_reply_bytes, reply](const std::vector<std::string>* paths) {
    const std::size_t bytes = rpc::kMinReplyBytes + (paths != nullptr ? encoded_bytes(*paths) : 0);
    if (paths == nullptr || bytes > max_reply_bytes)
      return reply_stat(reply, xid, rpc::AcceptStat::SystemErr);
    std::vector<std::byte> room(bytes);
    xdr::Writer writer(room);
    rpc::encode_accepted(writer, xid, {}, rpc::AcceptStat::Success);
    encode(writer, *paths);
    reply(writer.written());
  });
}

namespace {

const onc_rpc::ServiceName kMountName{
    "MOUNT",
    "Clients that query rpcbind use that server. If it does not run, remove it with 'rpcinfo -d 100005 3'"};

const onc_rpc::ServiceName kNfsName{
    "NFS",
    "Clients that query rpcbind use that server, unless they mount with port=. This host's own NFS server "
    "registers it while it runs. Stop it, or run 'rpcinfo -d 100003 3' and 'rpcinfo -d 100003 4' if it does "
    "not run"};

}  // namespace

std::vector<onc_rpc::Registration> registrations_of(const NfsListener& listener, bool six) {
  const bool every = listener.address == PeerAddress{};
  std::vector<PeerAddress> addresses{listener.address};
  if (every) addresses = {PeerAddress::from_ipv4(0, 0, 0, 0)};
  if (every && six) addresses.emplace_back();
  std::vector<onc_rpc::Registration> all;
  for (const std::uint32_t version : kNfsVersions)
    for (const PeerAddress& address : addresses)
      all.push_back({.program = kNfsProgram,
                     .version = version,
                     .netid = is_mapped_ipv4(address) ? "tcp" : "tcp6",
                     .address = universal_address(address, listener.port),
                     .owner = {}});
  return all;
}

MountService::MountService(std::uint16_t port, const std::string& rpcbind, std::unique_ptr<Exports> exports,
                           MountStatistics& statistics, events::Journal& journal,
                           const std::optional<NfsListener>& nfs)
    : exports_(std::move(exports)),
      procedures_(*exports_, statistics, journal),
      endpoint_(port, "MOUNT", "Set mount.port to another port, or mount.enabled = false.", procedures_,
                statistics.sockets, kMaxCallBytes) {
  if (rpcbind.empty()) return;
  endpoint_.register_program(kMountProgram, kMountVersion, rpcbind, kMountName);
  if (nfs)
    endpoint_.add_registrar(registrations_of(*nfs, endpoint_.has_family(AF_INET6)), rpcbind, kNfsName,
                            nfs->serves);
}

void MountService::prepare(PollSet& set) {
  endpoint_.prepare(set);
  if (!endpoint_.finishing()) exports_->prepare(set);
}

void MountService::poll(const PollSet& set, std::uint64_t now_ns) {
  if (!endpoint_.finishing()) exports_->poll(set, now_ns);
  endpoint_.poll(set, now_ns);
}

MountServer::MountServer(onc_rpc::PollThread& thread, std::uint16_t port, const std::string& rpcbind,
                         const MakeExports& make_exports, events::Journal& journal,
                         const std::optional<NfsListener>& nfs)
    : service_(port, rpcbind, make_exports(statistics_), statistics_, journal, nfs),
      attachment_(thread, service_) {}

namespace {

/// Returns the number of the export that `path` is in. There is at most one, because exports do not overlap.
std::optional<std::uint32_t> export_of(const segment::ConfigBlock& block, std::string_view path) {
  for (std::uint32_t i = 0; i < block.exports.size(); ++i)
    if (block.exports[i].in_use != 0 && is_at_or_below(path, block.exports[i].path)) return i;
  return std::nullopt;
}

MountAnswer to_mount_answer(const segment::PathAnswer& answer) {
  switch (const auto status = static_cast<MountStatus>(answer.status)) {
    case MountStatus::Ok:
      if (answer.handle_bytes == 0) break;
      return {MountStatus::Ok, {answer.handle, answer.handle + answer.handle_bytes}};
    case MountStatus::NoEnt:
    case MountStatus::NotDir:
    case MountStatus::NameTooLong:
      return {status, {}};
    default:
      break;
  }
  return {MountStatus::ServerFault, {}};
}

}  // namespace

SegmentExports::SegmentExports(const segment::Layout& layout)
    : layout_(layout), number_(segment::monotonic_ns()) {}

void SegmentExports::list(const onc_rpc::Asker& asker, OnList done) {
  std::vector<std::string> paths;
  if (const auto published = layout_.config.read_copy())
    for (const segment::ExportConfig& entry : published->exports)
      if (entry.in_use != 0 && allowed(entry.allowed, entry.allowed_count, asker.address))
        paths.emplace_back(entry.path);
  done(&paths);
}

void SegmentExports::mount(const std::string& path, const onc_rpc::Asker& asker, OnMount done) {
  now_ns_ = asker.now_ns;
  const auto published = layout_.config.read_copy();
  if (!published) return done({MountStatus::ServerFault, {}});
  const std::optional<std::string> normalized = normalized_path(path);
  if (!normalized) return done({MountStatus::NoEnt, {}});
  const auto number = export_of(*published, before_parent(*normalized));
  if (!number) return done({MountStatus::NoEnt, {}});
  const segment::ExportConfig& entry = published->exports[*number];
  if (!allowed(entry.allowed, entry.allowed_count, asker.address)) return done({MountStatus::Acces, {}});
  if (*normalized == entry.path) return done(root(*number));
  if (normalized->size() >= segment::kMaxMountPathBytes) return done({MountStatus::NameTooLong, {}});
  if (!room_for(asker)) return done({MountStatus::ServerFault, {}});
  waiters_.push_back({*normalized, *number, network_of(asker.address), asker.connected,
                      asker.now_ns + kPathAnswerNs, std::move(done)});
  if (waiters_.size() == 1) ask_next();
}

MountAnswer SegmentExports::root(std::uint32_t export_number) const {
  const auto info = segment::checked(layout_.exports[export_number]);
  if (!info || info->in_use == 0 || info->root_handle_bytes == 0) return {MountStatus::ServerFault, {}};
  return {MountStatus::Ok, {info->root_handle, info->root_handle + info->root_handle_bytes}};
}

bool SegmentExports::room_for(const onc_rpc::Asker& asker) const {
  const PeerAddress network = network_of(asker.address);
  std::size_t of_network = 0;
  std::size_t datagrams = 0;
  for (const Waiter& waiter : waiters_) {
    of_network += waiter.network == network ? 1 : 0;
    datagrams += waiter.connected ? 0 : 1;
  }
  return waiters_.size() < kMaxWaiting && of_network < kMaxWaitingOfNetwork &&
         (asker.connected || datagrams < kMaxWaitingDatagrams);
}

void SegmentExports::ask_next() {
  segment::PathQuestion question{.number = ++number_, .export_number = waiters_.front().export_number};
  waiters_.front().path.copy(question.path, sizeof question.path - 1);
  layout_.path_question.write(question);
}

/// Completes the first waiter. It is removed from the queue first, because the reply may trigger the client's
/// next call.
void SegmentExports::finish_first(const MountAnswer& answer) {
  const OnMount done = std::move(waiters_.front().done);
  waiters_.pop_front();
  if (!waiters_.empty()) ask_next();
  done(answer);
}

void SegmentExports::prepare(PollSet& set) {
  if (!waiters_.empty()) set.wake_at(now_ns_ + kPathPollNs);
}

void SegmentExports::poll(const PollSet&, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (waiters_.empty()) return;
  if (const auto answer = segment::checked(layout_.path_answer); answer && answer->number == number_)
    finish_first(to_mount_answer(*answer));
  fail_late();
}

/// Fails the waiters whose deadline has passed. The queue is ordered by deadline.
void SegmentExports::fail_late() {
  while (!waiters_.empty() && now_ns_ >= waiters_.front().deadline_ns) {
    if (now_ns_ >= next_line_ns_) {
      next_line_ns_ = now_ns_ + kSilenceLineNs;
      log::warn("MOUNT of '{}' failed because the data plane did not answer within {} s",
                waiters_.front().path, kPathAnswerNs / 1'000'000'000);
    }
    finish_first({MountStatus::ServerFault, {}});
  }
}

}  // namespace sluice::mount
