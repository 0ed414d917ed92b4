#compdef NAME
# Completion of NAME in zsh, after compinit. Load it with: source <(NAME completion zsh)
_IDENTIFIER() {
  local line value help tab=$'\t' files=''
  local -a values
  for line in "${(@f)$(NAME __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $line in
      :0) files=yes; continue ;;
      '' | :*) continue ;;
    esac
    value=${${line%%$tab*}//:/\\:}
    help=''
    [[ $line == *$tab* ]] && help=:${line#*$tab}
    values+=("$value$help")
  done
  if [[ $files ]]; then
    [[ $words[CURRENT] == -*=* ]] && compset -P '*='
    _files
  else
    _describe -V 'NAME' values
  fi
}
compdef _IDENTIFIER NAME
