// SPDX-License-Identifier: Apache-2.0
//
// The files of exports_directory: how they are read, and how sluicectl's exports are written.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "controlplane/config/config.h"
#include "controlplane/config/keys.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/base/text_file.h"
#include "dataplane/log/log.h"

namespace sluice::config {
namespace {

/// First line of the files that sluicectl may replace and remove.
constexpr std::string_view kFirstLine =
    "# Written for 'sluicectl exports add --save', which replaces the file as a whole. Remove this line to "
    "prevent that.\n";

/// Escapes the path of an export as 'systemd-escape --path' does.
std::string file_name_of(std::string_view path) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string name;
  for (const char c : path.substr(1)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '/')
      name += '-';
    else if (std::isalnum(byte) != 0 || c == '_' || c == ':' || (c == '.' && !name.empty()))
      name += c;
    else
      name.append("\\x").append({kDigits[byte >> 4], kDigits[byte & 15]});
  }
  return (name.empty() ? "-" : name) + ".toml";
}

/// Formats the file of an export. The clients are last, because a start refuses an export without them, and
/// with it a file that was truncated.
std::string text_of(const segment::ExportConfig& entry) {
  const Json keys = describe_entry(entry);
  std::string text = std::string(kFirstLine) + "[[export]]\n";
  const auto add = [&](std::string_view key) {
    text.append(key).append(" = ").append(keys.at(key).dump()).append("\n");
  };
  for (const auto& [key, value] : keys.items())
    if (key != "clients") add(key);
  add("clients");
  return text;
}

bool is_exported(const segment::ConfigBlock& block, std::string_view path) {
  return has_match(block.exports, [&](const auto& entry) { return entry.in_use != 0 && path == entry.path; });
}

/// Returns true if sluicectl has written the file for this export, and the file still has no other.
bool may_replace(const ExportFile& file, const std::string& path, const Config& whole) {
  return file.text.starts_with(kFirstLine) && whole.file_of_export(path) == file.name &&
         std::count_if(whole.export_files.begin(), whole.export_files.end(),
                       [&](const auto& known) { return known.second == file.name; }) == 1;
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = ::write(fd, text.data(), text.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(bytes));
  }
  return true;
}

bool write_new(const std::string& path, const std::string& text) {
  // Removes the file of a process that was killed. The name may lead to another file by now.
  ::unlink(path.c_str());
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640));
  return file && write_all(file.get(), text) && ::fsync(file.get()) == 0;
}

/// Writes the text to a new file in the same directory, with the suffix ".new", and renames it. Removes the
/// file if there is no text. A reader finds either the old or the new text, also after a power failure.
/// Blocks on the disk. Throws std::runtime_error with a sentence.
void replace_file(const std::string& directory, const ExportFile& file) {
  const std::string fresh = file.name + ".new";
  const FileDescriptor in(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool replaced = in && (file.text.empty() ? ::unlink(file.name.c_str()) == 0
                                                 : write_new(fresh, file.text) &&
                                                       ::rename(fresh.c_str(), file.name.c_str()) == 0);
  if (replaced) {
    // The file has been replaced, so this failure must not be reported as if the old text were still there.
    if (::fsync(in.get()) != 0)
      log::warn("{} has changed, but {} may not be on the disk ({}). Check the disk, and save again",
                file.name, directory, std::strerror(errno));
    return;
  }
  const int error = errno;
  if (in) ::unlink(fresh.c_str());
  throw std::runtime_error("Cannot write " + file.name + " (" + std::strerror(error) +
                           "). Let the control plane's user write to " + directory +
                           ", and free space there.");
}

}  // namespace

std::vector<ExportFile> read_export_files(const std::string& directory) {
  if (directory.empty()) return {};
  dirent** entries = nullptr;
  const int count = ::scandir(
      directory.c_str(), &entries,
      [](const dirent* entry) {
        return entry->d_name[0] != '.' && std::string_view(entry->d_name).ends_with(".toml") ? 1 : 0;
      },
      [](const dirent** one, const dirent** other) { return std::strcmp((*one)->d_name, (*other)->d_name); });
  if (count < 0)
    throw std::runtime_error("Cannot read the directory " + directory + " (" + std::strerror(errno) +
                             "), which exports_directory names. Create it, readable by the control plane's "
                             "user, or name another one.");
  std::vector<ExportFile> files;
  for (int i = 0; i < count; ++i) {
    files.push_back({.name = directory + '/' + entries[i]->d_name, .text = {}});
    std::free(entries[i]);
  }
  std::free(entries);
  for (ExportFile& file : files) file.text = read_text_file(file.name);
  return files;
}

Config save_export(const segment::ExportConfig& entry, const Config& running) {
  const std::string text = read_text_file(running.file);
  const std::string& directory = running.exports_directory;
  if (parse(text, running.file).exports_directory != directory)
    throw ConfigError("The key exports_directory in " + running.file +
                      " has changed since it was read. Run 'sluicectl config reload' to apply it.");
  std::vector<ExportFile> files = read_export_files(directory);
  Config whole = parse(text, running.file, files);
  const std::string path = entry.path;
  const std::string defined_in = whole.file_of_export(path);
  if (defined_in.empty() && entry.in_use == 0) {
    if (is_exported(running.block, path)) return whole;
    throw ConfigError("There is no export '" + path + "'. 'sluicectl exports' lists the exports.");
  }
  ExportFile own{.name = directory + '/' + file_name_of(path), .text = {}};
  const auto old =
      std::find_if(files.begin(), files.end(), [&](const ExportFile& file) { return file.name == own.name; });
  if (old != files.end() ? !may_replace(*old, path, whole) : !defined_in.empty()) {
    const std::string& file = defined_in.empty() ? own.name : defined_in;
    throw ConfigError(file + " was not written by sluicectl for '" + path +
                      "' alone. Edit this file, and run 'sluicectl config reload'.");
  }
  if (old != files.end()) files.erase(old);
  if (entry.in_use != 0) {
    own.text = text_of(entry);
    files.push_back(own);
  }
  whole = parse(text, running.file, files);
  replace_file(directory, own);
  return whole;
}

}  // namespace sluice::config
