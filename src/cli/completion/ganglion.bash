# Completion of NAME in bash. Load it with: source <(NAME completion bash)
_IDENTIFIER() {
  local word words=() joins='' line at
  # Readline splits words at = and :, and the program needs them whole.
  for ((at = 1; at <= COMP_CWORD; at++)); do
    word=${COMP_WORDS[at]}
    if [[ ${#words[@]} -gt 0 && ($joins || $word == [=:]*) ]]; then
      words[${#words[@]} - 1]+=$word
    else
      words+=("$word")
    fi
    joins=''
    [[ $word == *[=:] ]] && joins=yes
  done
  word=${words[${#words[@]} - 1]}
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :0) compopt -o default ;;
      :*) ;;
      *) line=${line%%$'\t'*}; COMPREPLY+=("${line#"${word%"$2"}"}") ;;
    esac
  done < <(NAME __complete "${words[@]}" 2>/dev/null)
}
complete -F _IDENTIFIER NAME
