// SPDX-License-Identifier: Apache-2.0
//
// Arguments and results of all procedures of NFS version 3, written by hand from RFC 1813, with the file
// handles that a test supplies.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/ulb/nfs3.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::test3 {

using Bytes = std::vector<std::byte>;

inline Bytes words(std::initializer_list<std::uint32_t> list) {
  Bytes bytes(list.size() * xdr::kUnit);
  std::size_t at = 0;
  for (const std::uint32_t word : list) {
    xdr::store_u32(&bytes[at], word);
    at += xdr::kUnit;
  }
  return bytes;
}
inline void append(Bytes& to, const Bytes& more) {
  to.insert(to.end(), more.begin(), more.end());
}
inline Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) append(all, part);
  return all;
}
inline Bytes counted(const Bytes& bytes) {
  Bytes all = joined({words({static_cast<std::uint32_t>(bytes.size())}), bytes});
  all.resize(xdr::padded(all.size()));
  return all;
}
inline Bytes text(std::string_view name) {
  const auto bytes = std::as_bytes(std::span(name));
  return counted({bytes.begin(), bytes.end()});
}
/// Returns a handle of `bytes`, filled from `seed`, after a tag if `tag` is not 0.
inline Bytes handle(std::size_t bytes, std::uint32_t seed, std::uint32_t tag = 0) {
  Bytes whole = tag != 0 ? words({tag}) : Bytes{};
  for (std::size_t i = 0; i < bytes; ++i) whole.push_back(static_cast<std::byte>(seed * 31 + i * 7));
  return whole;
}

inline constexpr std::uint32_t kReadDirPlusMost = 8192;

/// Returns arguments of a procedure. `most` is READDIRPLUS's maxcount.
inline Bytes arguments(std::uint32_t procedure, const Bytes& first, const Bytes& second,
                       std::uint32_t most = kReadDirPlusMost) {
  const Bytes attributes = words({1, 0644, 0, 0, 0, 0, 0});
  switch (procedure) {
    case ulb::kNfs3SetAttr:
      return joined({counted(first), attributes, words({0})});
    case ulb::kNfs3Lookup:
    case ulb::kNfs3Remove:
    case ulb::kNfs3RmDir:
      return joined({counted(first), text("name")});
    case ulb::kNfs3Access:
      return joined({counted(first), words({63})});
    case ulb::kNfs3Read:
      return joined({counted(first), words({0, 0, 12})});
    case ulb::kNfs3Write:
      return joined({counted(first), words({0, 0, 12, 2}), text("what is kept")});
    case ulb::kNfs3Create:
      return joined({counted(first), text("created"), words({0}), attributes});
    case ulb::kNfs3MkDir:
      return joined({counted(first), text("made"), attributes});
    case ulb::kNfs3SymLink:
      return joined({counted(first), text("link"), attributes, text("to/somewhere")});
    case ulb::kNfs3MkNod:
      return joined({counted(first), text("node"), words({7}), attributes});
    case ulb::kNfs3Rename:
      return joined({counted(first), text("before"), counted(second), text("afterwards")});
    case ulb::kNfs3Link:
      return joined({counted(first), counted(second), text("linked")});
    case ulb::kNfs3ReadDir:
      return joined({counted(first), words({0, 5, 0, 6, 4096})});
    case ulb::kNfs3ReadDirPlus:
      return joined({counted(first), words({0, 5, 0, 6, 1024, most})});
    case ulb::kNfs3Commit:
      return joined({counted(first), words({0, 0, 0})});
    default:  // GETATTR, READLINK, FSSTAT, FSINFO, PATHCONF
      return counted(first);
  }
}

inline Bytes attributes(std::uint32_t file_system) {
  return words({1, 0755, 2, 10, 11, 0, 4096, 0, 8192, 0, 0, file_system, 77, 0, 99, 1, 2, 3, 4, 5, 6});
}
inline Bytes some_attributes(std::uint32_t file_system) {
  return joined({words({1}), attributes(file_system)});
}
inline Bytes wcc_data(std::uint32_t file_system) {
  return joined({words({1, 0, 9, 1, 2, 3, 4}), some_attributes(file_system)});
}

/// Returns results of READDIRPLUS with an entry for each handle, followed by one without a handle if
/// `one_without`.
inline Bytes directory(const std::vector<Bytes>& handles, std::uint32_t file_system,
                       bool one_without = true) {
  Bytes all = joined({words({0}), some_attributes(file_system), words({0, 6})});
  std::uint32_t number = 0;
  for (const Bytes& each : handles) {
    append(all, joined({words({1, 0, ++number}), text("n" + std::to_string(number)), words({0, number}),
                        some_attributes(file_system)}));
    append(all, each.empty() ? words({0}) : joined({words({1}), counted(each)}));
  }
  if (one_without) append(all, joined({words({1, 0, 90}), text("without"), words({0, 90, 0, 0})}));
  append(all, words({0, 1}));
  return all;
}

/// Returns results of a successful call. An empty handle is encoded as absent.
inline Bytes results(std::uint32_t procedure, const Bytes& made, std::uint32_t file_system) {
  const Bytes ok = words({0});
  const Bytes post = some_attributes(file_system);
  switch (procedure) {
    case ulb::kNfs3GetAttr:
      return joined({ok, attributes(file_system)});
    case ulb::kNfs3SetAttr:
    case ulb::kNfs3Remove:
    case ulb::kNfs3RmDir:
      return joined({ok, wcc_data(file_system)});
    case ulb::kNfs3Lookup:
      return joined({ok, counted(made), post, post});
    case ulb::kNfs3Access:
      return joined({ok, post, words({63})});
    case ulb::kNfs3ReadLink:
      return joined({ok, post, text("to/somewhere")});
    case ulb::kNfs3Read:
      return joined({ok, post, words({12, 1}), text("what is kept")});
    case ulb::kNfs3Write:
      return joined({ok, wcc_data(file_system), words({12, 2, 1, 2})});
    case ulb::kNfs3Create:
    case ulb::kNfs3MkDir:
    case ulb::kNfs3SymLink:
    case ulb::kNfs3MkNod:
      return joined(
          {ok, made.empty() ? words({0}) : joined({words({1}), counted(made)}), post, wcc_data(file_system)});
    case ulb::kNfs3Rename:
      return joined({ok, wcc_data(file_system), wcc_data(file_system)});
    case ulb::kNfs3Link:
      return joined({ok, post, wcc_data(file_system)});
    case ulb::kNfs3ReadDir:
      return joined({ok, post, words({0, 6, 1, 0, 5}), text("name"), words({0, 1, 0, 1})});
    case ulb::kNfs3ReadDirPlus:
      return directory({made, made}, file_system);
    case ulb::kNfs3FsStat:
      return joined({ok, post, words({0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 7})});
    case ulb::kNfs3FsInfo:
      return joined({ok, post, words({4096, 4096, 512, 4096, 4096, 512, 4096, 0, 9, 0, 1, 27})});
    case ulb::kNfs3PathConf:
      return joined({ok, post, words({32, 255, 1, 1, 0, 1})});
    case ulb::kNfs3Commit:
      return joined({ok, wcc_data(file_system), words({1, 2})});
    default:
      return {};
  }
}

/// Returns results of a call that failed with `error`, without attributes.
inline Bytes failure(std::uint32_t procedure, std::uint32_t error) {
  static constexpr std::array<std::size_t, ulb::kNfs3Procedures> kFlags = {0, 0, 2, 1, 1, 1, 1, 2, 2, 2, 2,
                                                                           2, 2, 2, 4, 3, 1, 1, 1, 1, 1, 2};
  return joined({words({error}), Bytes(xdr::kUnit * kFlags[procedure])});
}

}  // namespace sluice::test3
