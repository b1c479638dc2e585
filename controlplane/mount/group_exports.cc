// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/group_exports.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <iterator>
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
  std::vector<std::vector<std::string>> paths;
  std::size_t awaited = 0;
  bool answered = false;
  Exports::OnList done;

  void one_less() {
    if (--awaited > 0) return;
    std::vector<std::string> all;
    for (auto& each : paths) std::move(each.begin(), each.end(), std::back_inserter(all));
    done(answered ? &all : nullptr);
  }
};

}  // namespace

GroupExports::GroupExports(std::vector<Member> members, Parts parts, MountStatistics& statistics,
                           Newcomers newcomers)
    : members_(std::make_move_iterator(members.begin()), std::make_move_iterator(members.end())),
      parts_(std::move(parts)),
      statistics_(statistics),
      newcomers_(std::move(newcomers)) {}

void GroupExports::take_newcomers() {
  for (const segment::UpstreamConfig& upstream : newcomers_.in_force()) {
    const bool known = std::any_of(members_.begin(), members_.end(),
                                   [&](const Member& member) { return member.name == upstream.name; });
    if (!known) members_.push_back({upstream.name, upstream.handle_tag, newcomers_.make(upstream)});
  }
}

void GroupExports::mount(const std::string& path, const Asker& asker, OnMount done) {
  take_newcomers();
  for (const Member& member : members_) {
    const auto its_path = parts_(member.name).of_upstream(path);
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
  xdr::store_u32(tag.data(), member.handle_tag);
  answer.handle.insert(answer.handle.begin(), tag.begin(), tag.end());
  return answer;
}

MountAnswer GroupExports::refused(const Member& member, MountStatus status, const std::string& why,
                                  std::uint64_t now_ns) {
  if (now_ns >= next_line_ns_) {
    next_line_ns_ = now_ns + kRefusalLineNs;
    spdlog::warn("An export of upstream '{}' cannot be mounted here: {}", member.name, why);
  }
  return {status, {}};
}

void GroupExports::list(const Asker& asker, OnList done) {
  take_newcomers();
  const auto listing = std::make_shared<Listing>();
  listing->paths.resize(members_.size());
  listing->awaited = members_.size();
  listing->done = std::move(done);
  for (std::size_t i = 0; i < members_.size(); ++i)
    members_[i].exports->list(asker, [this, i, listing](const std::vector<std::string>* paths) {
      if (paths != nullptr) {
        listing->answered = true;
        const ExportPaths part = parts_(members_[i].name);
        for (const std::string& path : *paths)
          if (auto known_as = part.of_clients(path)) listing->paths[i].push_back(std::move(*known_as));
      }
      listing->one_less();
    });
}

void GroupExports::prepare(PollSet& set) {
  for (const Member& member : members_) member.exports->prepare(set);
}

void GroupExports::turn(const PollSet& set, std::uint64_t now_ns) {
  for (const Member& member : members_) member.exports->turn(set, now_ns);
}

}  // namespace sluice::mount
