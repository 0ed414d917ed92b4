# Completion of NAME in fish. Load it with: NAME completion fish | source
function __IDENTIFIER_complete
  set --local word (commandline --current-token --cut-at-cursor)
  set --local words (commandline --current-process --tokenize --cut-at-cursor)[2..-1]
  set --local answer (NAME __complete $words $word 2>/dev/null)
  if contains -- :0 $answer
    # Files, behind an option as in --filename=FILE.
    set --local option (string match --regex -- '^-[^=]*=' $word)
    for file in (complete --do-complete "'' "(string replace --regex -- '^-[^=]*=' '' $word))
      echo "$option$file"
    end
  else
    string match --invert --regex '^:' -- $answer
  end
end
complete --command NAME --no-files --keep-order --arguments '(__IDENTIFIER_complete)'
