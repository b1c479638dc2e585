// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/group_exports.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "controlplane/mount/procedures.h"
#include "controlplane/mount/protocol.h"

namespace sluice::mount {
namespace {

constexpr std::size_t kTagBytes = xdr::kUnit;
/// Of AUTH_NONE and AUTH_SYS. A context of RPCSEC_GSS would be one upstream's, and would sign the handles.
constexpr std::uint32_t kLastPlainFlavor = 1;

/// Of all members, in their order.
struct Listing {
  std::list<std::vector<std::string>> paths;
  std::size_t awaited = 1;  ///< with who asks them
  bool answered = false;
  Exports::OnList done;

  void one_less() {
    if (--awaited > 0) return;
    std::vector<std::string> all;
    for (auto& each : paths) std::move(each.begin(), each.end(), std::back_inserter(all));
    done(answered ? &all : nullptr);
  }
};

/// Whether an UpstreamExports of one is good for the other.
bool is_asked_like(const segment::UpstreamConfig& one, const segment::UpstreamConfig& other) {
  const auto same = [](const segment::AllowedPrefix& mine, const segment::AllowedPrefix& its) {
    return mine.address == its.address && mine.prefix_bits == its.prefix_bits;
  };
  const auto allowed = [](const segment::UpstreamConfig& of) {
    return std::span(of.allowed).first(std::min(of.allowed_count, segment::kMaxAllowed));
  };
  return std::string_view(one.name) == other.name && one.mount_port == other.mount_port &&
         one.privileged_port == other.privileged_port &&
         std::ranges::equal(allowed(one), allowed(other), same);
}

}  // namespace

GroupExports::GroupExports(std::vector<Member> members, Parts parts, MountStatistics& statistics,
                           Newcomers newcomers)
    : members_(std::make_move_iterator(members.begin()), std::make_move_iterator(members.end())),
      parts_(std::move(parts)),
      statistics_(statistics),
      newcomers_(std::move(newcomers)) {}

void GroupExports::follow_reloads(std::uint64_t now_ns) {
  const auto in_force = newcomers_.in_force();
  for (Member& member : members_)
    if (member.retired_ns == 0 && !in_force.empty() &&
        std::none_of(in_force.begin(), in_force.end(),
                     [&](const auto& upstream) { return is_asked_like(upstream, member.upstream); }))
      member.retired_ns = now_ns;
  members_.remove_if([now_ns](const Member& member) {
    return member.retired_ns != 0 && now_ns - member.retired_ns > kRetiredNs;
  });
  for (const segment::UpstreamConfig& upstream : in_force) {
    const bool known = std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
      return member.retired_ns == 0 && is_asked_like(upstream, member.upstream);
    });
    if (!known) members_.push_back({upstream, newcomers_.make(upstream)});
  }
}

void GroupExports::mount(const std::string& path, const Asker& asker, OnMount done) {
  follow_reloads(asker.now_ns);
  for (const Member& member : members_) {
    if (member.retired_ns != 0) continue;
    const auto its_path = parts_(member.upstream.name).of_upstream(path);
    if (!its_path) continue;
    return member.exports->mount(*its_path, asker,
                                 [this, &member, now_ns = asker.now_ns, done = std::move(done)](
                                     const MountAnswer& answer) { done(tagged(member, answer, now_ns)); });
  }
  done({MountStatus::NoEnt, {}});
}

MountAnswer GroupExports::tagged(const Member& member, MountAnswer answer, std::uint64_t now_ns) {
  if (answer.status != MountStatus::Ok) return answer;
  if (answer.handle.size() + kTagBytes > kMaxHandle) {
    count(statistics_.handles_too_long);
    return refused(member, MountStatus::ServerFault,
                   "its file handles have " + std::to_string(answer.handle.size()) +
                       " bytes: as one of several for nfs3 it can have " +
                       std::to_string(kMaxHandle - kTagBytes),
                   now_ns);
  }
  std::erase_if(answer.flavors, [](std::uint32_t flavor) { return flavor > kLastPlainFlavor; });
  if (answer.flavors.empty())
    return refused(member, MountStatus::Acces,
                   "it wants Kerberos, which there is not with several upstreams for nfs3", now_ns);
  std::array<std::byte, kTagBytes> tag;
  xdr::store_u32(tag.data(), member.upstream.handle_tag);
  answer.handle.insert(answer.handle.begin(), tag.begin(), tag.end());
  return answer;
}

MountAnswer GroupExports::refused(const Member& member, MountStatus status, const std::string& why,
                                  std::uint64_t now_ns) {
  if (now_ns >= next_line_ns_) {
    next_line_ns_ = now_ns + kRefusalLineNs;
    spdlog::warn("An export of upstream '{}' cannot be mounted here: {}",
                 std::string_view(member.upstream.name), why);
  }
  return {status, {}};
}

void GroupExports::list(const Asker& asker, OnList done) {
  follow_reloads(asker.now_ns);
  const auto listing = std::make_shared<Listing>();
  listing->done = std::move(done);
  for (const Member& member : members_) {
    if (member.retired_ns != 0) continue;
    ++listing->awaited;
    auto& known_as = listing->paths.emplace_back();
    member.exports->list(asker, [this, &member, &known_as, listing](const std::vector<std::string>* paths) {
      if (paths != nullptr) {
        listing->answered = true;
        const ExportPaths part = parts_(member.upstream.name);
        for (const std::string& path : *paths)
          if (auto clients = part.of_clients(path)) known_as.push_back(std::move(*clients));
      }
      listing->one_less();
    });
  }
  listing->one_less();
}

void GroupExports::prepare(PollSet& set) {
  for (const Member& member : members_) member.exports->prepare(set);
}

void GroupExports::turn(const PollSet& set, std::uint64_t now_ns) {
  for (const Member& member : members_) member.exports->turn(set, now_ns);
}

}  // namespace sluice::mount
