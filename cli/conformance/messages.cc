// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/messages.h"

#include <cstdio>

namespace sluice::conformance {
namespace {

constexpr std::size_t kWordsShown = 48;

}  // namespace

// Not inline: gcc 12 warns of an overflow when it sees the size of a new vector.
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
  for (std::size_t i = 0; i < std::min(message.size() / 4, kWordsShown); ++i) {
    char word[12];
    std::snprintf(word, sizeof word, " %08X", word_at(message, i));
    line += word;
  }
  if (message.size() / 4 > kWordsShown) line += " ...";
  return line;
}

}  // namespace sluice::conformance
